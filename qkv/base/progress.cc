#include "qkv/base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace qkv {

Progress::Progress(double seconds) : terminal_(::isatty(STDERR_FILENO) != 0), interval_(seconds) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', stderr);
}

void Progress::update(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    if (now - last_ < std::chrono::milliseconds(100)) return;
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    open_ = true;
  } else {
    if (last_.time_since_epoch().count() != 0 && now - last_ < interval_) return;
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  std::fflush(stderr);
  last_ = now;
}

void Progress::note(const std::string& line) {
  std::fprintf(stderr, open_ ? "\r\033[K%s\n" : "%s\n", line.c_str());
  std::fflush(stderr);
  open_ = false;
}

std::string duration_text(double seconds) {
  const auto s = static_cast<long>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace qkv

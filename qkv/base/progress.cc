#include "qkv/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <limits>

namespace qkv {
namespace {

// Characters that fit into a line of the terminal on stderr: one less than its width, since some terminals
// wrap when the last column is filled.
size_t line_capacity() {
  winsize window{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col < 2)
    return std::numeric_limits<size_t>::max();
  return window.ws_col - 1;
}

// The first `count` characters of a UTF-8 text.
std::string first_characters(const std::string& text, size_t count) {
  size_t end = 0;
  for (; end < text.size(); ++end)
    if ((text[end] & 0xC0) != 0x80 && count-- == 0) break;  // the start of one more
  return text.substr(0, end);
}

}  // namespace

Progress::Progress(double seconds) : terminal_(::isatty(STDERR_FILENO) != 0), interval_(seconds) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', stderr);
}

void Progress::update(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    if (now - last_ < std::chrono::milliseconds(100)) return;
    std::fprintf(stderr, "\r\033[K%s", first_characters(line, line_capacity()).c_str());
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

std::string human_count(int64_t n) {
  if (n >= 10'000'000) return fmt::format("{:.0f}M", static_cast<double>(n) / 1e6);
  if (n >= 1'000'000) return fmt::format("{:.1f}M", static_cast<double>(n) / 1e6);
  return n >= 10'000 ? fmt::format("{:.0f}k", static_cast<double>(n) / 1e3) : std::to_string(n);
}

}  // namespace qkv

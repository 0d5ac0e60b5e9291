#include "qkv/base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <sstream>

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
    if ((text[end] & 0xC0) != 0x80 && count-- == 0) break;  // the next character begins
  return text.substr(0, end);
}

// Width of a UTF-8 text in columns, without the sequences that switch bold type on and off.
size_t shown_width(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = std::min(text.find('m', i), text.size());
      continue;
    }
    width += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
  }
  return width;
}

}  // namespace

Progress::Progress(double seconds, bool silent)
    : terminal_(::isatty(STDERR_FILENO) != 0), silent_(silent), interval_(seconds) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', stderr);
}

void Progress::update(const std::string& line) {
  if (silent_) return;
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

void Progress::update(const std::vector<LinePart>& parts) {
  update(fitted_line(parts, terminal_ ? line_capacity() : std::numeric_limits<size_t>::max()));
}

std::string Progress::strong(const std::string& text) const {
  const char *no_color = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  const bool plain =
      (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::string_view(term) == "dumb");
  return terminal_ && !plain ? "\033[1m" + text + "\033[0m" : text;
}

void Progress::note(const std::string& line) {
  if (silent_) return;
  const std::string text = terminal_ ? wrapped(line, line_capacity()) : line;
  std::fprintf(stderr, open_ ? "\r\033[K%s\n" : "%s\n", text.c_str());
  std::fflush(stderr);
  open_ = false;
}

std::string duration_text(double seconds) {
  const auto s = std::lround(seconds);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string human_count(int64_t n) {
  if (n >= 10'000'000) return fmt::format("{:.0f}M", static_cast<double>(n) / 1e6);
  if (n >= 1'000'000) return fmt::format("{:.1f}M", static_cast<double>(n) / 1e6);
  return n >= 10'000 ? fmt::format("{:.0f}k", static_cast<double>(n) / 1e3) : std::to_string(n);
}

std::string grouped_count(int64_t n) {
  std::string out = std::to_string(n);
  const size_t first = n < 0 ? 1 : 0;
  for (size_t at = out.size(); at > first + 3;) out.insert(at -= 3, ",");
  return out;
}

std::string counted(int64_t n, std::string_view one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

std::string progress_bar(double share, int width) {
  const int inside = width - 2, done = static_cast<int>(std::clamp(share, 0.0, 1.0) * inside);
  return fmt::format("[{:<{}}]", std::string(static_cast<size_t>(done), '='), inside);
}

std::string fitted_line(const std::vector<LinePart>& parts, size_t columns) {
  std::vector<LinePart> kept = parts;
  const auto joined = [&] {
    std::string out;
    for (const LinePart& p : kept) out += (out.empty() ? "" : "  ") + p.text;
    return out;
  };
  while (kept.size() > 1 && shown_width(joined()) > columns)
    kept.erase(std::min_element(kept.begin(), kept.end(),
                                [](const LinePart& a, const LinePart& b) { return a.rank < b.rank; }));
  return joined();
}

std::string wrapped(const std::string& text, size_t columns, std::string_view indent) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!out.empty()) out += '\n';
    if (shown_width(line) <= columns) {
      out += line;
      continue;
    }
    size_t used = 0;
    std::istringstream words(line);
    for (std::string word; std::getline(words, word, ' ');) {
      const size_t width = shown_width(word);
      if (used > indent.size() && used + 1 + width > columns) {
        out += '\n';
        out += indent;
        used = indent.size();
      } else if (used > 0) {
        out += ' ';
        ++used;
      }
      out += word;
      used += width;
    }
  }
  return out;
}

}  // namespace qkv

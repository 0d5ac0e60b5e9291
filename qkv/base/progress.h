// Progress of long work on stderr: one line that is rewritten on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// A part of a progress line. Where a terminal is too narrow, parts of the lowest rank are left out first.
struct LinePart {
  std::string text;
  int rank = 0;
};

// The line that tells how far one piece of work is; gone from the terminal when this is.
class Progress {
 public:
  // In a pipe a line is printed at most every `seconds`.
  explicit Progress(double seconds = 10);
  ~Progress();
  // Shows `line` instead of the last one; as much of it as the terminal is wide, or it could not be
  // rewritten.
  void update(const std::string& line);
  void update(const std::vector<LinePart>& parts);
  // Prints a line that stays; on a terminal that is narrower it is broken between words.
  void note(const std::string& line);
  // The text in bold type where stderr is a terminal that shows it and NO_COLOR is not set.
  std::string strong(const std::string& text) const;
  bool terminal() const { return terminal_; }

 private:
  bool terminal_;
  bool open_ = false;  // a rewritable line stands on the terminal
  std::chrono::duration<double> interval_;
  std::chrono::steady_clock::time_point last_;
};

// 75 -> "1:15", 3700 -> "1:01:40".
std::string duration_text(double seconds);

// "950", "12k", "3.4M".
std::string human_count(int64_t n);
// "1,234,567".
std::string grouped_count(int64_t n);
// "1 thread", "2 threads".
std::string counted(int64_t n, std::string_view one);

// The parts that fit into `columns`, two spaces between them.
std::string fitted_line(const std::vector<LinePart>& parts, size_t columns);
// The text with line breaks between words, so that no line is wider than `columns` unless a word is.
std::string wrapped(const std::string& text, size_t columns);

}  // namespace qkv

// Progress of long work on stderr: a line that is rewritten on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// A part of a progress line. If the terminal is too narrow, parts of the lowest rank are dropped first.
struct LinePart {
  std::string text;
  int rank = 0;
};

// The progress line of one task. The destructor ends the line on a terminal.
class Progress {
 public:
  // In a pipe, prints at most one line every `seconds`. `silent`: prints nothing at all.
  explicit Progress(double seconds = 10, bool silent = false);
  ~Progress();
  // Shows `line` instead of the last one. It is cut to the terminal's width, because wrapped lines cannot
  // be rewritten.
  void update(const std::string& line);
  void update(const std::vector<LinePart>& parts);
  // Prints a line that stays; a terminal that is too narrow gets line breaks between words.
  void note(const std::string& line);
  // The text in bold type if stderr is a terminal that supports it and NO_COLOR is not set.
  std::string strong(const std::string& text) const;
  bool terminal() const { return terminal_; }

 private:
  bool terminal_, silent_;
  bool open_ = false;  // the terminal shows a line to be rewritten
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

// "[====    ]": a bar of `width` columns for a share of all work, 0 to 1.
std::string progress_bar(double share, int width);
// The parts that fit into `columns`, joined by two spaces.
std::string fitted_line(const std::vector<LinePart>& parts, size_t columns);
// The text with line breaks between words, so that no line is wider than `columns` unless a word is. Lines
// that continue another begin with `indent`.
std::string wrapped(const std::string& text, size_t columns, std::string_view indent = "  ");

}  // namespace qkv

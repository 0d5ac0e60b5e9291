// Progress of long work on stderr: one line that is rewritten on a terminal, plain lines elsewhere.
#pragma once

#include <chrono>
#include <string>

namespace qkv {

// The line that tells how far one piece of work is; gone from the terminal when this is.
class Progress {
 public:
  // In a pipe a line is printed at most every `seconds`.
  explicit Progress(double seconds = 10);
  ~Progress();
  // Shows `line` instead of the last one; as much of it as the terminal is wide, or it could not be
  // rewritten.
  void update(const std::string& line);
  // Prints a line that stays.
  void note(const std::string& line);
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

}  // namespace qkv

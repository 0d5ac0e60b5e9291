// Lines that a person types at a terminal.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace qkv {

// Reads lines from standard input: at a terminal behind a prompt on standard error, with editing and a
// history (the keys of emacs, arrows), and otherwise as they come.
class LineEditor {
 public:
  explicit LineEditor(const char* prompt);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool at_terminal() const { return terminal_ != nullptr; }
  // The next line without its end; nothing at the end of the input.
  std::optional<std::string> read();

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace qkv

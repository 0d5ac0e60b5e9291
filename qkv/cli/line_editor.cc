#include "qkv/cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace qkv {

struct LineEditor::Terminal {
  explicit Terminal(const char* its_prompt) : prompt(its_prompt) {
    // Characters are several bytes long; texts are UTF-8 whatever the user's language.
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    editor = el_init("qkv", stdin, stderr, stderr);
    lines = history_init();
    if (editor == nullptr || lines == nullptr) return;
    HistEvent event;
    history(lines, &event, H_SETSIZE, 1000);
    history(lines, &event, H_SETUNIQUE, 1);
    el_set(editor, EL_CLIENTDATA, this);
    el_set(
        editor, EL_PROMPT, +[](EditLine* e) {
          void* self = nullptr;
          el_get(e, EL_CLIENTDATA, &self);
          return const_cast<char*>(static_cast<Terminal*>(self)->prompt.c_str());
        });
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, history, lines);
    el_set(editor, EL_SIGNAL, 1);
    el_source(editor, nullptr);  // the user's ~/.editrc
  }
  ~Terminal() {
    if (lines != nullptr) history_end(lines);
    if (editor != nullptr) el_end(editor);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::string prompt;
  EditLine* editor = nullptr;
  ::History* lines = nullptr;
};

LineEditor::LineEditor(const char* prompt) {
  if (::isatty(STDIN_FILENO) == 0) return;
  terminal_ = std::make_unique<Terminal>(prompt);
  if (terminal_->editor == nullptr || terminal_->lines == nullptr) terminal_.reset();
}

LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read() {
  std::string line;
  if (!terminal_) {
    if (!std::getline(std::cin, line)) return std::nullopt;
  } else {
    int length = 0;
    const char* typed = el_gets(terminal_->editor, &length);
    if (typed == nullptr || length <= 0) return std::nullopt;
    line.assign(typed, static_cast<size_t>(length));
    if (line.ends_with('\n')) line.pop_back();
    HistEvent event;
    if (!line.empty()) history(terminal_->lines, &event, H_ENTER, line.c_str());
  }
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

}  // namespace qkv

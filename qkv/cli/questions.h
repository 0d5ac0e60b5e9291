// Questions that a model answers by generating text, and how many it answers right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/infer/vote.h"

namespace qkv {

// A question, and its answer if that is known.
struct Question {
  std::string input;
  std::optional<std::string> output;
  std::string place;    // FILE:LINE
  std::string adapter;  // directory of the adapter that answers it; empty: the model alone does
};

// Reads JSON lines with "input" and, if the answers are known, "output" (a string or a number); "adapter" is
// optional, and a "rationale" is not read. Throws Error naming file, line and key, or if the file holds no
// question.
std::vector<Question> read_questions(const std::string& file);

// Prints the answers to questions, and counts the right ones: those that equal the known answer but for
// spaces around.
class AnswerCount {
 public:
  explicit AnswerCount(bool json) : json_(json) {}
  // Prints a line for the next question. `answers`: that of each sample, `texts`: what was generated.
  void add(const Question& question, const std::vector<std::optional<std::string>>& answers,
           const std::vector<std::string>& texts);
  // Prints the accuracy, if answers are known.
  void print_summary() const;

 private:
  bool json_;
  int64_t questions_ = 0, known_ = 0, right_ = 0, unanswered_ = 0;
};

}  // namespace qkv

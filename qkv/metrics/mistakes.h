// Wrong predictions of a classifier, a tagger or a model that finds answers, as a user reads them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/base/json.h"

namespace qkv {

struct Mistake {
  std::string place;                     // FILE:LINE
  std::string text, second;              // the texts of the example; `second` may be empty
  std::optional<std::string> word;       // for tags: the word
  std::string right;                     // the true class, tag or answer
  std::optional<std::string> predicted;  // nothing if truncation removed the word
  // Probability of `predicted`; for an answer its F1 with the right one; for a number its absolute error.
  double score = 0;
  bool answer = false, number = false;
};

// The score's name in JSON: "probability", "f1" or "error".
std::string score_name(const Mistake& mistake);

// An array with an object for each mistake: place, text, second, word, true, predicted, and the score.
OrderedJson mistakes_json(const std::vector<Mistake>& mistakes);

// Reads what mistakes_json() wrote. Throws Error naming the field.
std::vector<Mistake> read_mistakes(const JsonField& array);

}  // namespace qkv

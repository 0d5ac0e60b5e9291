// The result of an evaluation: losses and scores.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/metrics/scores.h"

namespace qkv {

// The losses of a text, in nats.
struct Evaluation {
  double total = 0;                   // nats over all predicted tokens
  int64_t tokens = 0;                 // predicted
  int64_t of_tokens = 0;              // in the text
  int64_t characters = 0, bytes = 0;  // of the text
  // Scores of classes, tags and answers by name (accuracy, macro_f1, ...), and the confusion matrix.
  std::vector<std::pair<std::string, double>> scores;
  ConfusionMatrix confusion;
  std::vector<std::string> labels;  // of the confusion: the model's, and behind them those it was not taught
  std::vector<std::pair<std::string, double>> losses;  // of a mixture: of each data set, by its name
  ChunkCounts chunks;                                  // of tags
  // Texts with classes, tags or answers; those longer than the model can read; tags and answers that were cut
  // away with their ends; those that lack a text, which count as wrong.
  int64_t examples = 0, cut = 0, missed = 0, without_text = 0;
  int64_t unseen = 0;  // examples or words whose label the model was not taught: they count as wrong

  double loss() const { return tokens ? total / static_cast<double>(tokens) : 0; }  // nats per token
  // 0 where there is none of this name.
  double score(std::string_view name) const;
  double perplexity() const;
  double nats_per_character() const;
  double bits_per_byte() const;
};

// A score for people: a share as a percentage, BLEU and Matthews' correlation as they are. `name`: of a
// mixture it ends in the data set's.
std::string score_text(std::string_view name, double value);

}  // namespace qkv

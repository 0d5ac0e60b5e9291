// The result of an evaluation: losses and scores.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/metrics/mistakes.h"
#include "qkv/metrics/scores.h"

namespace qkv {

// The losses of a text, in nats.
struct Evaluation {
  double total = 0;                   // nats over all predicted tokens
  int64_t tokens = 0;                 // predicted tokens
  int64_t of_tokens = 0;              // tokens of the text
  int64_t characters = 0, bytes = 0;  // size of the text
  // Scores for classes, tags and answers by name (accuracy, macro_f1, ...), and the confusion matrix.
  std::vector<std::pair<std::string, double>> scores;
  ConfusionMatrix confusion;
  LabelSets label_sets;             // counts of labels of which several may apply
  std::vector<std::string> labels;  // classes of the confusion matrix: the model's, then untaught ones
  std::vector<std::pair<std::string, double>>
      losses;          // other losses by name: of each dataset in a mixture, of each module (mtp_1, ...)
  ChunkCounts chunks;  // chunk counts of tags
  // Texts with classes, tags or answers; texts longer than the model can read; tags and answers lost to
  // truncation; examples that lack a text, which count as wrong.
  int64_t examples = 0, cut = 0, missed = 0, without_text = 0;
  int64_t mistaken = 0;           // wrong classes, tags or answers
  std::vector<Mistake> mistakes;  // the worst of them: the most confident, or answers with the lowest F1
  int64_t unseen = 0;  // examples or words with a label the model was not taught, which count as wrong

  double loss() const { return tokens ? total / static_cast<double>(tokens) : 0; }  // nats per token
  // The score with this name; 0 if there is none.
  double score(std::string_view name) const;
  double perplexity() const;
  double nats_per_character() const;
  double bits_per_byte() const;
};

// A score for display: shares as percentages, BLEU and Matthews correlation unchanged. `name`: for a
// mixture, it ends with the dataset's name.
std::string score_text(std::string_view name, double value);
// The usual name of a score: "macro F1" for macro_f1.
std::string score_label(const std::string& name);

}  // namespace qkv

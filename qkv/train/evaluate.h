// How well a model predicts a text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/data/labelled.h"
#include "qkv/data/pairs.h"
#include "qkv/models/transformer.h"
#include "qkv/train/scores.h"

namespace qkv {

// The losses of a text, in nats.
struct Evaluation {
  double total = 0;                   // nats over all predicted tokens
  int64_t tokens = 0;                 // predicted
  int64_t of_tokens = 0;              // in the text
  int64_t characters = 0, bytes = 0;  // of the text
  // Of classes, tags and answers, by name: accuracy, macro_f1, ...; and what was taken for what.
  std::vector<std::pair<std::string, double>> scores;
  ConfusionMatrix confusion;

  double loss() const { return tokens ? total / static_cast<double>(tokens) : 0; }  // nats per token
  // 0 where there is none of this name.
  double score(std::string_view name) const;
  double perplexity() const;
  double nats_per_character() const;
  double bits_per_byte() const;
};

// Predicts the stream in windows that do not overlap, `batch` at a time; at most `windows` of them, spread
// evenly over the text (0: all).
Evaluation evaluate(const Transformer& model, const TokenStream& stream, int64_t batch, int64_t windows = 0);

// Predicts every pair's target, about `tokens` tokens at a time. Characters and bytes are the targets'.
Evaluation evaluate(const Transformer& model, const PairStream& pairs, SequenceEnds ends, int64_t tokens);

// Tells the classes, tags or answers of every sequence, about `tokens` tokens at a time.
Evaluation evaluate(const Transformer& model, const LabelledStream& stream, int64_t tokens);

}  // namespace qkv

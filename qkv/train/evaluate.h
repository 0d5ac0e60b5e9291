// How well a model predicts a text.
#pragma once

#include "qkv/data/dataset.h"
#include "qkv/models/decoder.h"

namespace qkv {

// The losses of a text, in nats.
struct Evaluation {
  double total = 0;                   // nats over all predicted tokens
  int64_t tokens = 0;                 // predicted
  int64_t of_tokens = 0;              // in the text
  int64_t characters = 0, bytes = 0;  // of the text

  double loss() const { return tokens ? total / static_cast<double>(tokens) : 0; }  // nats per token
  double perplexity() const;
  double nats_per_character() const;
  double bits_per_byte() const;
};

// Predicts the stream in windows that do not overlap, `batch` at a time; at most `windows` of them, spread
// evenly over the text (0: all).
Evaluation evaluate(const Decoder& model, const TokenStream& stream, int64_t batch, int64_t windows = 0);

}  // namespace qkv

// Texts that a model learns to restore, in training and after it.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/data/corruption.h"
#include "qkv/data/pairs.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/config/config.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// How texts are corrupted.
struct Restoration {
  Objective objective = Objective::span_corruption;  // or denoise
  SpanCorruption spans = {};                         // of the one
  Denoising noise = {};                              // and of the other

  // How many tokens source and target have together for each of the text: spans have a sentinel in both, and
  // what noise leaves out is not foreseen.
  double tokens_of_each() const;
};

// `rates` with what they need to know of a vocabulary: the sentinels, or the mask and what ends a sentence.
// Throws Error where it has none.
Restoration restoration_for(const text::Tokenizer& tokenizer, Restoration rates);

// Tokens of a text at most, so that a model of this shape can read its source and its target: a decoder alone
// reads them in a row.
int64_t restorable_tokens(const ModelSpec& spec, const Restoration& r);

// Tokens of each piece's source and target together, as far as they can be told before the noise.
std::vector<int64_t> lengths_of(const std::vector<Piece>& pieces, const Restoration& r);

// One piece of a stream. `draw`: others are drawn in each epoch.
Corrupted corrupted(const TokenStream& stream, const Piece& piece, const Restoration& r, uint64_t seed,
                    uint64_t draw);

// Some pieces as one batch for a model of this shape.
Batch restoration_batch(const TokenStream& stream, const std::vector<Piece>& pieces,
                        const std::vector<int64_t>& which, const Restoration& r, const SequenceEnds& ends,
                        const ModelSpec& spec, uint64_t seed, uint64_t draw);

// Predicts what is to be written for the pieces as `seed` corrupts them, the same every time, about `tokens`
// tokens at a time.
Evaluation evaluate_restored(const Transformer& model, const TokenStream& stream,
                             const std::vector<Piece>& pieces, const Restoration& r, const SequenceEnds& ends,
                             int64_t tokens, uint64_t seed);

}  // namespace qkv

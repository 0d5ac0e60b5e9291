// Texts that a model learns to restore or to continue, for training and evaluation.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/data/corruption.h"
#include "qkv/data/pairs.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/config/config.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// How to corrupt texts.
struct Restoration {
  Objective objective = Objective::span_corruption;  // or denoise, prefix_lm
  SpanCorruption spans = {};                         // for span_corruption
  Denoising noise = {};                              // for denoise

  // Tokens of source and target together, per token of text. Each span has a sentinel in both; the effect
  // of noise on lengths is not predicted.
  double tokens_of_each() const;
};

// `rates` completed for a vocabulary: with its sentinels, or with the mask and the ends of sentences.
// Throws Error if it has none.
Restoration restoration_for(const text::Tokenizer& tokenizer, Restoration rates);

// Largest number of tokens of a text whose source and target a model of this shape can read. A decoder
// alone reads them in a row.
int64_t restorable_tokens(const ModelSpec& spec, const Restoration& r);

// Estimated tokens of each piece's source and target together, before the noise.
std::vector<int64_t> lengths_of(const std::vector<Piece>& pieces, const Restoration& r);

// Corrupts one piece of a stream. `draw` selects the random draw, another one in each epoch.
Corrupted corrupted(const TokenStream& stream, const Piece& piece, const Restoration& r, uint64_t seed,
                    uint64_t draw);

// Returns some pieces as one batch for a model of this shape.
Batch restoration_batch(const TokenStream& stream, const std::vector<Piece>& pieces,
                        const std::vector<int64_t>& which, const Restoration& r, const SequenceEnds& ends,
                        const ModelSpec& spec, uint64_t seed, uint64_t draw);

// Predicts the targets of the pieces, which `seed` corrupts in the same way every time, about `tokens`
// tokens at a time.
Evaluation evaluate_restored(const Transformer& model, const TokenStream& stream,
                             const std::vector<Piece>& pieces, const Restoration& r, const SequenceEnds& ends,
                             int64_t tokens, uint64_t seed, Communicator& ranks = single_process());

}  // namespace qkv

// Sequence-to-sequence data: sources with their targets, and the batches made of them.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/data/dataset.h"

namespace qkv {

// Document d of one stream goes with document d of the other.
struct PairStream {
  TokenStream source, target;
  int64_t size() const { return static_cast<int64_t>(source.starts().size()) - 1; }
};

// What stands around sequences.
struct SequenceEnds {
  int32_t bos, eos;
};

// These pairs as one batch: the encoder reads source eos, the decoder bos target, and predicts target eos
// (Algorithm 11). Sequences longer than `context` lose what is beyond it.
Batch pair_batch(const PairStream& pairs, std::span<const int64_t> which, SequenceEnds ends, int64_t context);

// Training batches of about `tokens` tokens, of sources and targets together; lengths in a batch are alike.
// Each epoch has every pair once, in an order of its own. The batch of a step is a function of (seed, step).
class PairBatches {
 public:
  PairBatches(const PairStream& pairs, SequenceEnds ends, int64_t context, int64_t tokens, uint64_t seed);
  // Micro-batch `index` of all, from 0.
  Batch batch(uint64_t index);
  // Of the first epoch; others differ by a few.
  int64_t batches_per_epoch() const { return first_epoch_; }

 private:
  int64_t tokens_of(int64_t pair) const;
  void start_epoch();

  const PairStream& pairs_;
  SequenceEnds ends_;
  int64_t context_, tokens_;
  uint64_t seed_, epoch_ = 0, begin_ = 0;      // of this epoch: its number, its first batch's index
  std::vector<std::vector<int64_t>> batches_;  // its pairs
  int64_t first_epoch_ = 0;
};

// Every pair once, those of like lengths together, for evaluation.
std::vector<std::vector<int64_t>> pairs_by_length(const PairStream& pairs, int64_t tokens, int64_t context);

}  // namespace qkv

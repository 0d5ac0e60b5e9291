// Sequence-to-sequence data: sources with their targets, and the batches made of them.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/data/corruption.h"
#include "qkv/data/dataset.h"
#include "qkv/data/length_batches.h"

namespace qkv {

// Document d of one stream goes with document d of the other.
struct PairStream {
  TokenStream source, target;
  int64_t size() const { return static_cast<int64_t>(source.starts().size()) - 1; }
};

// What stands around sequences.
struct SequenceEnds {
  int32_t bos, eos;  // of targets
  std::vector<int32_t> source_begin = {}, source_end = {eos};
  std::vector<int32_t> target_begin = {};  // of targets, behind bos: the decoder writes them

  int64_t around_source() const { return std::ssize(source_begin) + std::ssize(source_end); }
  bool operator==(const SequenceEnds&) const = default;
};

// These pairs as one batch for a model that reads them so. An encoder reads source eos (or what else stands
// around a source), the decoder behind it bos target, and predicts target eos (Algorithm 11), where a target
// begins with target_begin; a decoder alone reads source eos bos target, and predicts the same. Sequences
// longer than the model's context lose what is beyond it.
Batch pair_batch(const PairStream& pairs, std::span<const int64_t> which, const SequenceEnds& ends,
                 const PairLayout& layout);

// The same of pairs at hand.
Batch pair_batch(std::span<const Corrupted> pairs, const SequenceEnds& ends, const PairLayout& layout);

// Pairs whose source, or whose target, loses tokens so.
struct CutPairs {
  int64_t sources = 0, targets = 0;
};
CutPairs count_cut(const PairStream& pairs, const SequenceEnds& ends, const PairLayout& layout);

// Tokens of each pair in a batch, source and target together.
std::vector<int64_t> pair_lengths(const PairStream& pairs, const SequenceEnds& ends, int64_t context);

}  // namespace qkv

// Sequence-to-sequence data: sources with their targets, and batches of them.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/data/corruption.h"
#include "qkv/data/dataset.h"
#include "qkv/data/length_batches.h"

namespace qkv {

// Document d of one stream is paired with document d of the other.
struct PairStream {
  TokenStream source, target;
  int64_t size() const { return static_cast<int64_t>(source.starts().size()) - 1; }
};

// Special tokens around sequences.
struct SequenceEnds {
  int32_t bos, eos;  // tokens around targets
  std::vector<int32_t> source_begin = {}, source_end = {eos};
  std::vector<int32_t> target_begin = {};  // tokens that begin targets after bos; the decoder writes them

  int64_t around_source() const { return std::ssize(source_begin) + std::ssize(source_end); }
  bool operator==(const SequenceEnds&) const = default;
};

// Builds a batch of these pairs. An encoder reads source eos (or other tokens around a source). The decoder
// reads bos target and predicts target eos (Algorithm 11); a target begins with target_begin. A decoder
// without an encoder reads source eos bos target, and predicts the same. Sequences longer than the model's
// context are truncated.
Batch pair_batch(const PairStream& pairs, std::span<const int64_t> which, const SequenceEnds& ends,
                 const PairLayout& layout);

// The same for pairs in memory.
Batch pair_batch(std::span<const Corrupted> pairs, const SequenceEnds& ends, const PairLayout& layout);

// Numbers of pairs whose source, or whose target, is truncated.
struct CutPairs {
  int64_t sources = 0, targets = 0;
};
CutPairs count_cut(const PairStream& pairs, const SequenceEnds& ends, const PairLayout& layout);

// Number of tokens of each pair in a batch, source and target together.
std::vector<int64_t> pair_lengths(const PairStream& pairs, const SequenceEnds& ends, int64_t context);

}  // namespace qkv

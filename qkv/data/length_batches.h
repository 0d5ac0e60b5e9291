// Batches of sequences whose lengths are alike, filled by tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

// Items of these lengths in batches of at most `tokens` tokens, at least one item each, the shortest first.
std::vector<std::vector<int64_t>> batches_by_length(std::span<const int64_t> lengths, int64_t tokens);

// The same for training: each epoch has every item once, in an order of its own. The batch of an index is a
// function of (seed, index).
class LengthBatches {
 public:
  // REQUIRES: at least one length.
  LengthBatches(std::vector<int64_t> lengths, int64_t tokens, uint64_t seed);

  // The items of batch `index` of all, from 0; valid until the next call.
  const std::vector<int64_t>& items(uint64_t index);
  // The epoch of that batch, from 0.
  uint64_t epoch(uint64_t index);
  // Of the first epoch; others differ by a few.
  int64_t batches_per_epoch() const { return first_epoch_; }

 private:
  void find_epoch(uint64_t index);
  void start_epoch();

  std::vector<int64_t> lengths_;
  int64_t tokens_;
  uint64_t seed_, epoch_ = 0, begin_ = 0;      // of this epoch: its number, its first batch's index
  std::vector<std::vector<int64_t>> batches_;  // its items
  int64_t first_epoch_ = 0;
};

// Places these items at random: the order is a function of (seed, epoch).
void shuffle(std::vector<int64_t>& items, uint64_t seed, uint64_t epoch);

}  // namespace qkv

// Batches of sequences of similar lengths, limited by tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

// Groups items of these lengths into batches of at most `tokens` tokens and at least one item, the shortest
// first.
std::vector<std::vector<int64_t>> batches_by_length(std::span<const int64_t> lengths, int64_t tokens);

// The same for training: each epoch has every item once, in its own order. The batch of an index is a
// function of (seed, index).
class LengthBatches {
 public:
  // REQUIRES: at least one length.
  LengthBatches(std::vector<int64_t> lengths, int64_t tokens, uint64_t seed);

  // The items of batch `index`, counted from 0 over all epochs. Valid until the next call.
  const std::vector<int64_t>& items(uint64_t index);
  // The epoch of that batch, from 0.
  uint64_t epoch(uint64_t index);
  // Number of batches in the first epoch; that of others differs slightly.
  int64_t batches_per_epoch() const { return first_epoch_; }

 private:
  void find_epoch(uint64_t index);
  void start_epoch();

  std::vector<int64_t> lengths_;
  int64_t tokens_;
  uint64_t seed_, epoch_ = 0, begin_ = 0;      // number of the current epoch, and index of its first batch
  std::vector<std::vector<int64_t>> batches_;  // its batches
  int64_t first_epoch_ = 0;
};

// Shuffles the items; the order is a function of (seed, epoch).
void shuffle(std::vector<int64_t>& items, uint64_t seed, uint64_t epoch);

}  // namespace qkv

#include "qkv/data/length_batches.h"

#include <algorithm>
#include <numeric>

#include "qkv/base/error.h"
#include "qkv/base/rng.h"

namespace qkv {
namespace {

// A number for (seed, epoch, item) that orders items at random.
uint64_t order_key(uint64_t seed, uint64_t epoch, uint64_t item) {
  return static_cast<uint64_t>(RandomStream{seed, epoch, 0x70616972}.uniform(item) * 0x1p53);
}

// Cuts a list into batches of at most `tokens` tokens, at least one item each.
std::vector<std::vector<int64_t>> cut(std::span<const int64_t> items, std::span<const int64_t> lengths,
                                      int64_t tokens) {
  std::vector<std::vector<int64_t>> out;
  int64_t sum = 0;
  for (const int64_t i : items) {
    if (out.empty() || sum + lengths[i] > tokens) out.emplace_back(), sum = 0;
    out.back().push_back(i);
    sum += lengths[i];
  }
  return out;
}

}  // namespace

void shuffle(std::vector<int64_t>& items, uint64_t seed, uint64_t epoch) {
  std::vector<std::pair<uint64_t, int64_t>> keyed;
  keyed.reserve(items.size());
  for (const int64_t i : items) keyed.emplace_back(order_key(seed, epoch, static_cast<uint64_t>(i)), i);
  std::sort(keyed.begin(), keyed.end());
  for (size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
}

std::vector<std::vector<int64_t>> batches_by_length(std::span<const int64_t> lengths, int64_t tokens) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return lengths[a] < lengths[b]; });
  return cut(order, lengths, tokens);
}

LengthBatches::LengthBatches(std::vector<int64_t> lengths, int64_t tokens, uint64_t seed)
    : lengths_(std::move(lengths)), tokens_(tokens), seed_(seed) {
  check(!lengths_.empty(), "there is nothing to learn from");
  start_epoch();
  first_epoch_ = std::ssize(batches_);
}

// Items are shuffled, sorted by length within pools of some batches and cut, and the batches are shuffled
// again. A batch has similar lengths, yet differs from epoch to epoch.
void LengthBatches::start_epoch() {
  constexpr int64_t kPool = 64;  // batches
  std::vector<int64_t> order(lengths_.size());
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, seed_, epoch_);
  batches_.clear();
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    for (int64_t sum = 0; end < order.size() && sum < kPool * tokens_; ++end) sum += lengths_[order[end]];
    const auto pool = std::span(order).subspan(begin, end - begin);
    std::stable_sort(pool.begin(), pool.end(),
                     [&](int64_t a, int64_t b) { return lengths_[a] < lengths_[b]; });
    for (auto& b : cut(pool, lengths_, tokens_)) batches_.push_back(std::move(b));
    begin = end;
  }
  std::vector<int64_t> places(batches_.size());
  std::iota(places.begin(), places.end(), 0);
  shuffle(places, seed_ + 1, epoch_);
  std::vector<std::vector<int64_t>> shuffled;
  shuffled.reserve(places.size());
  for (const int64_t p : places) shuffled.push_back(std::move(batches_[p]));
  batches_ = std::move(shuffled);
}

void LengthBatches::find_epoch(uint64_t index) {
  if (index < begin_) epoch_ = begin_ = 0, start_epoch();
  while (index >= begin_ + batches_.size()) {
    begin_ += batches_.size();
    ++epoch_;
    start_epoch();
  }
}

const std::vector<int64_t>& LengthBatches::items(uint64_t index) {
  find_epoch(index);
  return batches_[index - begin_];
}

uint64_t LengthBatches::epoch(uint64_t index) {
  find_epoch(index);
  return epoch_;
}

}  // namespace qkv

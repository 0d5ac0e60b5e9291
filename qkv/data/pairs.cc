#include "qkv/data/pairs.h"

#include <algorithm>
#include <numeric>

namespace qkv {
namespace {

std::span<const int32_t> document(const TokenStream& stream, int64_t d) {
  const auto starts = stream.starts();
  return stream.tokens().subspan(starts[d], starts[d + 1] - starts[d]);
}

int64_t length(const TokenStream& stream, int64_t d, int64_t context) {
  return std::min<int64_t>(stream.starts()[d + 1] - stream.starts()[d] + 1, context);  // with bos or eos
}

// A number for (seed, epoch, item) that orders items at random.
uint64_t order_key(uint64_t seed, uint64_t epoch, uint64_t item) {
  return static_cast<uint64_t>(RandomStream{seed, epoch, 0x70616972}.uniform(item) * 0x1p53);
}

void shuffle(std::vector<int64_t>& items, uint64_t seed, uint64_t epoch) {
  std::vector<std::pair<uint64_t, int64_t>> keyed;
  keyed.reserve(items.size());
  for (const int64_t i : items) keyed.emplace_back(order_key(seed, epoch, static_cast<uint64_t>(i)), i);
  std::sort(keyed.begin(), keyed.end());
  for (size_t i = 0; i < items.size(); ++i) items[i] = keyed[i].second;
}

// Cuts a list into batches of at most `tokens` tokens, at least one pair each.
template <typename F>
std::vector<std::vector<int64_t>> cut(std::span<const int64_t> items, int64_t tokens, const F& tokens_of) {
  std::vector<std::vector<int64_t>> out;
  int64_t sum = 0;
  for (const int64_t i : items) {
    const int64_t n = tokens_of(i);
    if (out.empty() || sum + n > tokens) out.emplace_back(), sum = 0;
    out.back().push_back(i);
    sum += n;
  }
  return out;
}

}  // namespace

Batch pair_batch(const PairStream& pairs, std::span<const int64_t> which, SequenceEnds ends,
                 int64_t context) {
  std::vector<int32_t> source, ids, targets, source_lengths, lengths;
  for (const int64_t d : which) {
    const auto z = document(pairs.source, d), x = document(pairs.target, d);
    const auto kept = [&](std::span<const int32_t> s) {
      return std::min<int64_t>(std::ssize(s), context - 1);
    };
    source.insert(source.end(), z.begin(), z.begin() + kept(z));
    source.push_back(ends.eos);
    source_lengths.push_back(static_cast<int32_t>(kept(z) + 1));
    ids.push_back(ends.bos);
    ids.insert(ids.end(), x.begin(), x.begin() + kept(x));
    targets.insert(targets.end(), x.begin(), x.begin() + kept(x));
    // A target that was cut does not end here.
    targets.push_back(kept(x) == std::ssize(x) ? ends.eos : x[kept(x)]);
    lengths.push_back(static_cast<int32_t>(kept(x) + 1));
  }
  Batch b;
  b.source = Tensor::of({std::ssize(source)}, source);
  b.source_layout = Layout::of(source_lengths);
  b.ids = Tensor::of({std::ssize(ids)}, ids);
  b.layout = Layout::of(lengths);
  b.targets = Tensor::of({std::ssize(targets)}, targets);
  b.target_count = std::ssize(targets);
  return b;
}

PairBatches::PairBatches(const PairStream& pairs, SequenceEnds ends, int64_t context, int64_t tokens,
                         uint64_t seed)
    : pairs_(pairs), ends_(ends), context_(context), tokens_(tokens), seed_(seed) {
  check(pairs.size() > 0, "there are no pairs to learn from");
  start_epoch();
  first_epoch_ = std::ssize(batches_);
}

int64_t PairBatches::tokens_of(int64_t pair) const {
  return length(pairs_.source, pair, context_) + length(pairs_.target, pair, context_);
}

// Pairs are shuffled, sorted by length within pools of some batches, cut, and the batches shuffled again:
// like lengths stand together, yet no epoch has the batches of another.
void PairBatches::start_epoch() {
  constexpr int64_t kPool = 64;  // batches
  std::vector<int64_t> order(pairs_.size());
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, seed_, epoch_);
  batches_.clear();
  const auto by_length = [&](int64_t a, int64_t b) {
    const auto key = [&](int64_t d) {
      return std::pair(length(pairs_.target, d, context_), length(pairs_.source, d, context_));
    };
    return key(a) < key(b);
  };
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    for (int64_t sum = 0; end < order.size() && sum < kPool * tokens_; ++end) sum += tokens_of(order[end]);
    std::stable_sort(order.begin() + static_cast<int64_t>(begin), order.begin() + static_cast<int64_t>(end),
                     by_length);
    for (auto& b :
         cut(std::span(order).subspan(begin, end - begin), tokens_, [&](int64_t d) { return tokens_of(d); }))
      batches_.push_back(std::move(b));
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

Batch PairBatches::batch(uint64_t index) {
  if (index < begin_) epoch_ = begin_ = 0, start_epoch();
  while (index >= begin_ + batches_.size()) {
    begin_ += batches_.size();
    ++epoch_;
    start_epoch();
  }
  return pair_batch(pairs_, batches_[index - begin_], ends_, context_);
}

std::vector<std::vector<int64_t>> pairs_by_length(const PairStream& pairs, int64_t tokens, int64_t context) {
  std::vector<int64_t> order(pairs.size());
  std::iota(order.begin(), order.end(), 0);
  const auto tokens_of = [&](int64_t d) {
    return length(pairs.source, d, context) + length(pairs.target, d, context);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return tokens_of(a) < tokens_of(b); });
  return cut(order, tokens, tokens_of);
}

}  // namespace qkv

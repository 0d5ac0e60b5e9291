#include "qkv/data/pairs.h"

#include <algorithm>

namespace qkv {
namespace {

std::span<const int32_t> document(const TokenStream& stream, int64_t d) {
  const auto starts = stream.starts();
  return stream.tokens().subspan(starts[d], starts[d + 1] - starts[d]);
}

int64_t length(const TokenStream& stream, int64_t d, int64_t context) {
  return std::min<int64_t>(stream.starts()[d + 1] - stream.starts()[d] + 1, context);  // with bos or eos
}

}  // namespace

namespace {

// Collects pairs.
class PairBatchBuilder {
 public:
  PairBatchBuilder(SequenceEnds ends, int64_t context) : ends_(ends), context_(context) {}

  void add(std::span<const int32_t> z, std::span<const int32_t> x) {
    const auto kept = [&](std::span<const int32_t> s) {
      return std::min<int64_t>(std::ssize(s), context_ - 1);
    };
    source_.insert(source_.end(), z.begin(), z.begin() + kept(z));
    source_.push_back(ends_.eos);
    source_lengths_.push_back(static_cast<int32_t>(kept(z) + 1));
    ids_.push_back(ends_.bos);
    ids_.insert(ids_.end(), x.begin(), x.begin() + kept(x));
    targets_.insert(targets_.end(), x.begin(), x.begin() + kept(x));
    // A target that was cut does not end here.
    targets_.push_back(kept(x) == std::ssize(x) ? ends_.eos : x[kept(x)]);
    lengths_.push_back(static_cast<int32_t>(kept(x) + 1));
  }
  Batch batch() const {
    Batch b;
    b.source = Tensor::of({std::ssize(source_)}, source_);
    b.source_layout = Layout::of(source_lengths_);
    b.ids = Tensor::of({std::ssize(ids_)}, ids_);
    b.layout = Layout::of(lengths_);
    b.targets = Tensor::of({std::ssize(targets_)}, targets_);
    b.target_count = std::ssize(targets_);
    return b;
  }

 private:
  SequenceEnds ends_;
  int64_t context_;
  std::vector<int32_t> source_, ids_, targets_, source_lengths_, lengths_;
};

}  // namespace

Batch pair_batch(const PairStream& pairs, std::span<const int64_t> which, SequenceEnds ends,
                 int64_t context) {
  PairBatchBuilder builder(ends, context);
  for (const int64_t d : which) builder.add(document(pairs.source, d), document(pairs.target, d));
  return builder.batch();
}

Batch pair_batch(std::span<const Corrupted> pairs, SequenceEnds ends, int64_t context) {
  PairBatchBuilder builder(ends, context);
  for (const Corrupted& p : pairs) builder.add(p.source, p.target);
  return builder.batch();
}

std::vector<int64_t> pair_lengths(const PairStream& pairs, int64_t context) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < pairs.size(); ++d)
    out.push_back(length(pairs.source, d, context) + length(pairs.target, d, context));
  return out;
}

}  // namespace qkv

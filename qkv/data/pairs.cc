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

// Collects pairs.
class PairBatchBuilder {
 public:
  PairBatchBuilder(SequenceEnds ends, const ModelSpec& spec)
      : ends_(ends), spec_(spec), apart_(spec.architecture == Architecture::encoder_decoder) {}

  void add(std::span<const int32_t> z, std::span<const int32_t> x) {
    // Of a decoder alone the source takes its place first: source, eos and bos.
    const int64_t z_kept = std::min(std::ssize(z), spec_.context - (apart_ ? 1 : 2)),
                  x_kept = std::min(std::ssize(x), spec_.context - 1 - (apart_ ? 0 : z_kept + 1));
    std::vector<int32_t>& source = apart_ ? source_ : ids_;
    source.insert(source.end(), z.begin(), z.begin() + z_kept);
    source.push_back(ends_.source_eos);
    if (apart_)
      source_lengths_.push_back(static_cast<int32_t>(z_kept + 1));
    else
      targets_.insert(targets_.end(), z_kept + 1, kIgnored);
    ids_.push_back(ends_.bos);
    ids_.insert(ids_.end(), x.begin(), x.begin() + x_kept);
    targets_.insert(targets_.end(), x.begin(), x.begin() + x_kept);
    // A target that was cut does not end here.
    targets_.push_back(x_kept == std::ssize(x) ? ends_.eos : x[x_kept]);
    target_count_ += x_kept + 1;
    prefixes_.push_back(static_cast<int32_t>(z_kept + 2));
    lengths_.push_back(static_cast<int32_t>(x_kept + 1 + (apart_ ? 0 : z_kept + 1)));
  }
  Batch batch() const {
    Batch b;
    if (apart_) {
      b.source = Tensor::of({std::ssize(source_)}, source_);
      b.source_layout = Layout::of(source_lengths_);
    }
    b.ids = Tensor::of({std::ssize(ids_)}, ids_);
    b.layout = Layout::of(lengths_);
    if (spec_.order == Order::prefix) b.ranks = prefix_ranks(b.layout, prefixes_);
    b.targets = Tensor::of({std::ssize(targets_)}, targets_);
    b.target_count = target_count_;
    return b;
  }

 private:
  SequenceEnds ends_;
  const ModelSpec& spec_;
  bool apart_;  // source and target are read by a stack each
  int64_t target_count_ = 0;
  std::vector<int32_t> source_, ids_, targets_, source_lengths_, lengths_, prefixes_;
};

}  // namespace

Batch pair_batch(const PairStream& pairs, std::span<const int64_t> which, SequenceEnds ends,
                 const ModelSpec& spec) {
  PairBatchBuilder builder(ends, spec);
  for (const int64_t d : which) builder.add(document(pairs.source, d), document(pairs.target, d));
  return builder.batch();
}

Batch pair_batch(std::span<const Corrupted> pairs, SequenceEnds ends, const ModelSpec& spec) {
  PairBatchBuilder builder(ends, spec);
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

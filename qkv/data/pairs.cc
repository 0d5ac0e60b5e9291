#include "qkv/data/pairs.h"

#include <algorithm>

namespace qkv {
namespace {

std::span<const int32_t> document(const TokenStream& stream, int64_t d) {
  const auto starts = stream.starts();
  return stream.tokens().subspan(starts[d], starts[d + 1] - starts[d]);
}

// Length of a document with `around` tokens added, at most `context`.
int64_t length(const TokenStream& stream, int64_t d, int64_t around, int64_t context) {
  return std::min<int64_t>(stream.starts()[d + 1] - stream.starts()[d] + around, context);
}

// The number of tokens of a source and of a target that a model reads.
struct Kept {
  int64_t source, target;
};
Kept kept_of(int64_t source, int64_t target, const SequenceEnds& ends, const PairLayout& layout) {
  // In a decoder without an encoder, the source with its special tokens comes first, then the target.
  const bool apart = layout.two_stacks;
  const int64_t around = ends.around_source(),
                context = apart && layout.source_context > 0 ? layout.source_context : layout.context,
                z = std::min(source, std::max<int64_t>(0, context - around - (apart ? 0 : 1)));
  return {z, std::min(target, layout.context - 1 - (apart ? 0 : z + around))};
}

// Collects pairs into a batch.
class PairBatchBuilder {
 public:
  PairBatchBuilder(const SequenceEnds& ends, const PairLayout& layout)
      : ends_(ends), layout_(layout), apart_(layout.two_stacks) {}

  void add(std::span<const int32_t> z, std::span<const int32_t> text) {
    std::vector<int32_t> x = ends_.target_begin;
    x.insert(x.end(), text.begin(), text.end());
    // In a decoder without an encoder, the source with its special tokens comes first, then the target.
    const auto [z_kept, x_kept] = kept_of(std::ssize(z), std::ssize(x), ends_, layout_);
    const int64_t z_length = z_kept + ends_.around_source();
    std::vector<int32_t>& source = apart_ ? source_ : ids_;
    source.insert(source.end(), ends_.source_begin.begin(), ends_.source_begin.end());
    source.insert(source.end(), z.begin(), z.begin() + z_kept);
    source.insert(source.end(), ends_.source_end.begin(), ends_.source_end.end());
    if (apart_)
      source_lengths_.push_back(static_cast<int32_t>(z_length));
    else
      targets_.insert(targets_.end(), z_length, kIgnored);
    ids_.push_back(ends_.bos);
    ids_.insert(ids_.end(), x.begin(), x.begin() + x_kept);
    targets_.insert(targets_.end(), x.begin(), x.begin() + x_kept);
    // A truncated target does not end with eos.
    targets_.push_back(x_kept == std::ssize(x) ? ends_.eos : x[x_kept]);
    target_count_ += x_kept + 1;
    prefixes_.push_back(static_cast<int32_t>(z_length + 1));
    lengths_.push_back(static_cast<int32_t>(x_kept + 1 + (apart_ ? 0 : z_length)));
  }
  Batch batch() const {
    Batch b;
    if (apart_) {
      b.source = source_;
      b.source_layout = Layout::of(source_lengths_);
    }
    b.ids = ids_;
    b.layout = Layout::of(lengths_);
    if (layout_.prefix) b.visibility = prefix_ranks(b.layout, prefixes_);
    b.targets = targets_;
    b.target_count = target_count_;
    return b;
  }

 private:
  SequenceEnds ends_;
  PairLayout layout_;
  bool apart_;  // an encoder reads the source and a decoder the target
  int64_t target_count_ = 0;
  std::vector<int32_t> source_, ids_, targets_, source_lengths_, lengths_, prefixes_;
};

}  // namespace

CutPairs count_cut(const PairStream& pairs, const SequenceEnds& ends, const PairLayout& layout) {
  CutPairs out;
  for (int64_t d = 0; d < pairs.size(); ++d) {
    const int64_t z = std::ssize(document(pairs.source, d)),
                  x = std::ssize(document(pairs.target, d)) + std::ssize(ends.target_begin);
    const Kept kept = kept_of(z, x, ends, layout);
    out.sources += kept.source < z;
    out.targets += kept.target < x;
  }
  return out;
}

Batch pair_batch(const PairStream& pairs, std::span<const int64_t> which, const SequenceEnds& ends,
                 const PairLayout& layout) {
  PairBatchBuilder builder(ends, layout);
  for (const int64_t d : which) builder.add(document(pairs.source, d), document(pairs.target, d));
  return builder.batch();
}

Batch pair_batch(std::span<const Corrupted> pairs, const SequenceEnds& ends, const PairLayout& layout) {
  PairBatchBuilder builder(ends, layout);
  for (const Corrupted& p : pairs) builder.add(p.source, p.target);
  return builder.batch();
}

std::vector<int64_t> pair_lengths(const PairStream& pairs, const SequenceEnds& ends, int64_t context) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < pairs.size(); ++d)
    out.push_back(length(pairs.source, d, ends.around_source(), context) +
                  length(pairs.target, d, 1 + std::ssize(ends.target_begin), context));
  return out;
}

}  // namespace qkv

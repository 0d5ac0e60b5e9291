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

std::vector<int64_t> pair_lengths(const PairStream& pairs, int64_t context) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < pairs.size(); ++d)
    out.push_back(length(pairs.source, d, context) + length(pairs.target, d, context));
  return out;
}

}  // namespace qkv

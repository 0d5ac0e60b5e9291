#include "qkv/data/labelled.h"

namespace qkv {

void LabelledStream::append(const std::vector<int32_t>& ids, const std::vector<int32_t>& its_segments,
                            const std::vector<int32_t>& its_targets) {
  const size_t wanted = output == Output::span ? 2 : output == Output::sequence_classes ? 1 : ids.size();
  check(!ids.empty() && its_segments.size() == ids.size() && its_targets.size() == wanted,
        "labelled sequence: {} tokens, {} segments, {} targets of {}", ids.size(), its_segments.size(),
        its_targets.size(), wanted);
  tokens.append(ids);
  segments.insert(segments.end(), its_segments.begin(), its_segments.end());
  targets.insert(targets.end(), its_targets.begin(), its_targets.end());
}

std::vector<int64_t> LabelledStream::lengths() const {
  std::vector<int64_t> out;
  const auto starts = tokens.starts();
  for (int64_t d = 0; d < size(); ++d) out.push_back(starts[d + 1] - starts[d]);
  return out;
}

std::span<const int32_t> LabelledStream::targets_of(int64_t d) const {
  const std::span<const int32_t> all = targets;
  if (output == Output::sequence_classes) return all.subspan(d, 1);
  if (output == Output::span) return all.subspan(2 * d, 2);
  const auto starts = tokens.starts();
  return all.subspan(starts[d], starts[d + 1] - starts[d]);
}

Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which) {
  std::vector<int32_t> ids, segments, targets, lengths;
  const auto starts = stream.tokens.starts();
  const auto tokens = stream.tokens.tokens();
  Batch b;
  for (const int64_t d : which) {
    const auto begin = starts[d], end = starts[d + 1];
    ids.insert(ids.end(), tokens.begin() + begin, tokens.begin() + end);
    segments.insert(segments.end(), stream.segments.begin() + begin, stream.segments.begin() + end);
    lengths.push_back(static_cast<int32_t>(end - begin));
    for (const int32_t t : stream.targets_of(d)) {
      targets.push_back(t);
      b.target_count += t != kIgnored;
    }
  }
  const bool span = stream.output == Output::span;
  if (span) b.target_count /= 2;
  b.ids = Tensor::of({std::ssize(ids)}, ids);
  b.segments = Tensor::of({std::ssize(segments)}, segments);
  b.layout = Layout::of(lengths);
  b.targets = Tensor::of(span ? Shape{std::ssize(which), 2} : Shape{std::ssize(targets)}, targets);
  return b;
}

}  // namespace qkv

#include "qkv/data/labelled.h"

#include <algorithm>
#include <functional>

#include "qkv/base/rng.h"

namespace qkv {

void LabelledStream::append(const std::vector<int32_t>& ids, const std::vector<int32_t>& its_segments,
                            const std::vector<int32_t>& its_targets, const std::vector<float>& its_numbers) {
  const size_t wanted = !questions.empty()                   ? 0
                        : output == Output::span             ? 2
                        : output == Output::sequence_classes ? 1
                                                             : ids.size();
  check(!ids.empty() && its_segments.size() == ids.size() && its_targets.size() == wanted,
        "labelled sequence: {} tokens, {} segments, {} targets of {}", ids.size(), its_segments.size(),
        its_targets.size(), wanted);
  check(std::ssize(its_numbers) == columns, "labelled sequence: {} numbers of {}", its_numbers.size(),
        columns);
  tokens.append(ids);
  numbers.insert(numbers.end(), its_numbers.begin(), its_numbers.end());
  segments.insert(segments.end(), its_segments.begin(), its_segments.end());
  targets.insert(targets.end(), its_targets.begin(), its_targets.end());
}

void LabelledStream::end_question(int32_t right) {
  const int64_t sequences = std::ssize(tokens.starts()) - 1;
  check(!questions.empty() && right >= 0 && right < sequences - questions.back(),
        "labelled question: choice {} of {}", right, questions.empty() ? 0 : sequences - questions.back());
  questions.push_back(sequences);
  targets.push_back(right);
}

std::pair<int64_t, int64_t> LabelledStream::sequences_of(int64_t item) const {
  return questions.empty() ? std::pair(item, item + 1) : std::pair(questions[item], questions[item + 1]);
}

std::vector<int64_t> LabelledStream::lengths() const {
  std::vector<int64_t> out;
  const auto starts = tokens.starts();
  for (int64_t item = 0; item < size(); ++item) {
    const auto [begin, end] = sequences_of(item);
    out.push_back(starts[end] - starts[begin]);
  }
  return out;
}

std::span<const int32_t> LabelledStream::targets_of(int64_t d) const {
  const std::span<const int32_t> all = targets;
  if (output == Output::sequence_classes) return all.subspan(d, 1);
  if (output == Output::span) return all.subspan(2 * d, 2);
  const auto starts = tokens.starts();
  return all.subspan(starts[d], starts[d + 1] - starts[d]);
}

namespace {

constexpr uint32_t kNoiseSite = 0x6e6f6973;  // "nois"

// One sequence of a batch. A question's targets are those of its last sequence.
struct Sequence {
  std::vector<int32_t> ids, segments, targets;
};

Sequence sequence_of(const LabelledStream& stream, int64_t d, std::span<const int32_t> targets) {
  const auto starts = stream.tokens.starts();
  const auto ids = stream.tokens.tokens().subspan(starts[d], starts[d + 1] - starts[d]);
  return {{ids.begin(), ids.end()},
          {stream.segments.begin() + starts[d], stream.segments.begin() + starts[d + 1]},
          {targets.begin(), targets.end()}};
}

void add_noise(Sequence& s, const Augmentation& noise, bool of_tokens, const RandomStream& random) {
  const auto special = [&](int32_t id) {
    return static_cast<size_t>(id) < noise.special.size() && noise.special[id];
  };
  const auto n = s.ids.size();
  int64_t left = 0;
  for (const int32_t id : s.ids) left += !special(id);
  Sequence out;
  out.targets = s.targets;
  for (size_t i = 0; i < n; ++i) {
    const auto at = 3 * static_cast<uint64_t>(i);
    int32_t id = s.ids[i];
    if (!special(id)) {
      if (!of_tokens && left > 1 && random.uniform(at) < noise.drop) {
        --left;
        continue;
      }
      const bool next = i + 1 < n && !special(s.ids[i + 1]) && s.segments[i] == s.segments[i + 1];
      if (!of_tokens && next && random.uniform(at + 1) < noise.swap) {
        std::swap(s.ids[i], s.ids[i + 1]);
        id = s.ids[i];
      }
      if (random.uniform(at + 2) < noise.mask) id = noise.mask_id;
    }
    out.ids.push_back(id);
    out.segments.push_back(s.segments[i]);
  }
  s = std::move(out);
}

Batch batch_of(const LabelledStream& stream, std::span<const int64_t> which,
               const std::function<void(Sequence&, int64_t)>& change) {
  std::vector<int32_t> ids, segments, targets, lengths;
  Batch b;
  const bool questions = !stream.questions.empty();
  if (questions) b.choices = {0};
  for (const int64_t item : which) {
    const auto [begin, end] = stream.sequences_of(item);
    for (int64_t d = begin; d < end; ++d) {
      Sequence s = sequence_of(stream, d, d + 1 < end ? std::span<const int32_t>() : stream.targets_of(item));
      change(s, d);
      ids.insert(ids.end(), s.ids.begin(), s.ids.end());
      segments.insert(segments.end(), s.segments.begin(), s.segments.end());
      targets.insert(targets.end(), s.targets.begin(), s.targets.end());
      lengths.push_back(static_cast<int32_t>(s.ids.size()));
      for (const int32_t t : s.targets) b.target_count += t != kIgnored;
    }
    if (questions) b.choices.push_back(static_cast<int32_t>(lengths.size()));
  }
  if (stream.columns > 0) {
    b.sequence_numbers = Tensor::empty({std::ssize(which), stream.columns}, DType::f32);
    for (int64_t s = 0; s < std::ssize(which); ++s)
      std::copy_n(stream.numbers.begin() + which[s] * stream.columns, stream.columns,
                  b.sequence_numbers.mutable_row<float>(s).begin());
  }
  const bool span = stream.output == Output::span;
  if (span) b.target_count /= 2;
  b.ids = std::move(ids);
  b.segments = std::move(segments);
  b.layout = Layout::of(lengths);
  b.targets = span ? Indices(std::move(targets), 2) : Indices(std::move(targets));
  return b;
}

}  // namespace

Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which) {
  return batch_of(stream, which, [](Sequence&, int64_t) {});
}

Batch labelled_batch(const LabelledStream& stream, std::span<const int64_t> which, const Augmentation& noise,
                     uint64_t seed, uint64_t draw) {
  check(stream.output != Output::span, "noise would move answers");
  const bool of_tokens = stream.output == Output::token_classes;
  return batch_of(stream, which, [&](Sequence& s, int64_t d) {
    add_noise(s, noise, of_tokens, {seed ^ (static_cast<uint64_t>(d) << 24), draw, kNoiseSite});
  });
}

}  // namespace qkv

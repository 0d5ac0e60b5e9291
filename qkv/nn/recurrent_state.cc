#include "qkv/nn/recurrent_state.h"

#include <algorithm>
#include <set>

namespace qkv {

void RecurrentState::keep(int64_t sequence, int64_t length, const Tensor& states, int64_t row) {
  const auto values = states.row<float>(row);
  std::vector<Snapshot>& kept = kept_[sequence];
  kept.push_back({length, std::make_shared<std::vector<float>>(values.begin(), values.end())});
  if (std::ssize(kept) > kKept + 1) kept.erase(kept.begin() + 1);
}

void RecurrentState::begin(const Tensor& first) {
  check(sequences() == 0 || !begun(), "recurrent state: it has begun");
  check(first.dtype() == DType::f32 && first.shape() == Shape({sequences(), width_}),
        "recurrent state: expected f32 [{}, {}], got {} {}", sequences(), width_, name_of(first.dtype()),
        first.shape());
  for (int64_t s = 0; s < sequences(); ++s)
    if (kept_[s].empty()) keep(s, 0, first, s);
}

bool RecurrentState::begun() const {
  return std::ranges::none_of(kept_, [](const std::vector<Snapshot>& kept) { return kept.empty(); });
}

void RecurrentState::append(const Tensor& states, std::span<const int32_t> offsets) {
  check(std::ssize(offsets) == sequences() + 1, "recurrent state: {} sequences, got {}", sequences(),
        std::ssize(offsets) - 1);
  check(begun(), "recurrent state: it has not begun");
  check(states.dtype() == DType::f32 && states.shape() == Shape({offsets.back(), width_}),
        "recurrent state: expected f32 [{}, {}], got {} {}", offsets.back(), width_, name_of(states.dtype()),
        states.shape());
  for (int64_t s = 0; s < sequences(); ++s) {
    const int64_t before = length(s), end = offsets[s + 1];
    for (int64_t row = std::max<int64_t>(offsets[s], end - kKept); row < end; ++row)
      keep(s, before + row - offsets[s] + 1, states, row);
  }
}

Tensor RecurrentState::last() const {
  check(begun(), "recurrent state: it has not begun");
  Tensor out = Tensor::empty({sequences(), width_}, DType::f32);
  for (int64_t s = 0; s < sequences(); ++s)
    std::ranges::copy(*kept_[s].back().state, out.mutable_row<float>(s).begin());
  return out;
}

int64_t RecurrentState::length(int64_t sequence) const {
  check(sequence >= 0 && sequence < sequences(), "recurrent state: no sequence {}", sequence);
  return kept_[sequence].empty() ? 0 : kept_[sequence].back().length;
}

void RecurrentState::reorder(std::span<const int32_t> sources) {
  std::vector<std::vector<Snapshot>> kept;
  for (const int32_t s : sources) {
    check(s >= 0 && s < sequences(), "reorder: no sequence {}", s);
    kept.push_back(kept_[s]);
  }
  kept_ = std::move(kept);
}

void RecurrentState::join(const LayerState& state, std::span<const int32_t> sequences) {
  const auto& other = joined_state<RecurrentState>(state);
  check(other.width_ == width_, "join: a recurrence of width {}, not {}", other.width_, width_);
  for (const int32_t s : sequences) {
    check(s >= 0 && s < other.sequences(), "join: no sequence {}", s);
    kept_.push_back(other.kept_[s]);
  }
}

bool RecurrentState::can_truncate(int64_t sequence, int64_t to) const {
  check(sequence >= 0 && sequence < sequences(), "truncate: no sequence {}", sequence);
  const std::vector<Snapshot>& kept = kept_[sequence];
  return (kept.empty() && to == 0) || std::ranges::find(kept, to, &Snapshot::length) != kept.end();
}

void RecurrentState::truncate(int64_t sequence, int64_t length) {
  check(sequence >= 0 && sequence < sequences(), "truncate: no sequence {}", sequence);
  std::vector<Snapshot>& kept = kept_[sequence];
  if (kept.empty() && length == 0) return;
  const auto at = std::ranges::find(kept, length, &Snapshot::length);
  check(at != kept.end(),
        "truncate: a recurrence goes back by {} tokens at most, or to the start: sequence {} from {} to {}",
        kKept - 1, sequence, this->length(sequence), length);
  kept.erase(at + 1, kept.end());
}

int64_t RecurrentState::bytes() const {
  std::set<const void*> states;
  for (const std::vector<Snapshot>& kept : kept_)
    for (const Snapshot& s : kept) states.insert(s.state.get());
  return std::ssize(states) * width_ * static_cast<int64_t>(sizeof(float));
}

std::vector<Tensor> RecurrentState::save() const {
  std::vector<int32_t> counts, lengths;
  for (const auto& kept : kept_) {
    counts.push_back(static_cast<int32_t>(kept.size()));
    for (const Snapshot& s : kept) lengths.push_back(static_cast<int32_t>(s.length));
  }
  Tensor rows = Tensor::empty({std::ssize(lengths), width_}, DType::f32);
  int64_t row = 0;
  for (const auto& kept : kept_)
    for (const Snapshot& s : kept) std::ranges::copy(*s.state, rows.mutable_row<float>(row++).begin());
  return {Tensor::of({std::ssize(counts)}, counts), Tensor::of({std::ssize(lengths)}, lengths), rows};
}

void RecurrentState::load(const std::vector<Tensor>& saved) {
  check(saved.size() == 3 && saved[0].dtype() == DType::i32 && saved[0].shape().rank() == 1 &&
            saved[1].dtype() == DType::i32 && saved[1].shape().rank() == 1 &&
            saved[2].dtype() == DType::f32 && saved[2].shape() == Shape({saved[1].count(), width_}),
        "recurrent state: expected counts and lengths of snapshots, i32, and f32 [snapshots, {}]", width_);
  const auto counts = saved[0].values<int32_t>(), lengths = saved[1].values<int32_t>();
  RecurrentState next(std::ssize(counts), width_);
  int64_t row = 0;
  for (int64_t s = 0; s < std::ssize(counts); ++s) {
    check(counts[s] >= 0 && counts[s] <= kKept + 1 && row + counts[s] <= std::ssize(lengths) &&
              (counts[s] == 0) == (counts[0] == 0) && (counts[s] == 0 || lengths[row] == 0),
          "recurrent state: bad number of snapshots {}", counts[s]);
    for (const int64_t end = row + counts[s], first = row; row < end; ++row) {
      check(row == first || lengths[row] > lengths[row - 1], "recurrent state: lengths must rise");
      next.keep(s, lengths[row], saved[2], row);
    }
  }
  check(row == std::ssize(lengths), "recurrent state: {} snapshots of {} sequences, got {}", row,
        std::ssize(counts), std::ssize(lengths));
  *this = std::move(next);
}

}  // namespace qkv

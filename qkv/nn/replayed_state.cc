#include "qkv/nn/replayed_state.h"

#include <algorithm>
#include <set>

#include "qkv/ops/elementwise.h"

namespace qkv {

const ReplayedState::Sequence& ReplayedState::of(int64_t sequence) const {
  check(sequence >= 0 && sequence < sequences(), "states: no sequence {}", sequence);
  return all_[sequence];
}

ReplayedState::State ReplayedState::replayed(const State& from, std::span<const float> rows) const {
  if (rows.empty()) return from;
  const Tensor first = Tensor::of({1, width_}, from ? *from : Floats(width_, 0.0F)),
               read = Tensor::of({std::ssize(rows) / inputs_, inputs_}, rows);
  const Tensor last = replay_(first, convert(read, type_));
  const auto state = last.values<float>();
  return std::make_shared<const Floats>(state.begin(), state.end());
}

Tensor ReplayedState::last() const {
  Tensor out = Tensor::zeros({sequences(), width_}, DType::f32);
  for (int64_t s = 0; s < sequences(); ++s)
    if (all_[s].now) std::ranges::copy(*all_[s].now, out.mutable_row<float>(s).begin());
  return out;
}

std::vector<int32_t> ReplayedState::marks(std::span<const int32_t> offsets) const {
  check(std::ssize(offsets) == sequences() + 1, "states: {} sequences, got {}", sequences(),
        std::ssize(offsets) - 1);
  std::vector<int32_t> out;
  for (int64_t s = 0; s < sequences(); ++s)
    out.push_back(std::max<int32_t>(0, offsets[s + 1] - offsets[s] - static_cast<int32_t>(kKept)));
  return out;
}

void ReplayedState::append(const Tensor& given, const Tensor& marked, const Tensor& last,
                           std::span<const int32_t> offsets) {
  const std::vector<int32_t> at = marks(offsets);
  check(given.shape() == Shape({offsets.back(), inputs_}), "states: expected inputs [{}, {}], got {}",
        offsets.back(), inputs_, given);
  const bool begun = std::ranges::any_of(all_, [](const Sequence& s) { return !s.rows.empty(); });
  check(!begun || given.dtype() == type_, "states: inputs were {}, now are {}", name_of(type_),
        name_of(given.dtype()));
  type_ = given.dtype();
  const Tensor rows = convert(given, DType::f32);
  for (const Tensor* x : {&marked, &last})
    check(x->dtype() == DType::f32 && x->shape() == Shape({sequences(), width_}),
          "states: expected states f32 [{}, {}], got {}", sequences(), width_, *x);
  const auto state_of = [](const Tensor& states, int64_t s) {
    const auto row = states.row<float>(s);
    return std::make_shared<const Floats>(row.begin(), row.end());
  };
  for (int64_t s = 0; s < sequences(); ++s) {
    const int64_t n = offsets[s + 1] - offsets[s];
    if (n == 0) continue;
    Sequence& q = all_[s];
    if (at[s] > 0) {
      q.earlier = state_of(marked, s);
      q.before = q.length + at[s];
      q.rows.clear();
    }
    const auto read = rows.values<float>().subspan((offsets[s] + at[s]) * inputs_, (n - at[s]) * inputs_);
    q.rows.insert(q.rows.end(), read.begin(), read.end());
    q.now = state_of(last, s);
    q.length += n;
    if (const int64_t more = q.length - q.before - kKept; more > kKept) {
      q.earlier = replayed(q.earlier, std::span(q.rows).first(more * inputs_));
      q.before += more;
      q.rows.erase(q.rows.begin(), q.rows.begin() + more * inputs_);
    }
  }
}

void ReplayedState::reorder(std::span<const int32_t> sources) {
  std::vector<Sequence> next;
  for (const int32_t s : sources) next.push_back(of(s));
  all_ = std::move(next);
}

void ReplayedState::join(const LayerState& state, std::span<const int32_t> sequences) {
  const auto& other = joined_state<ReplayedState>(state);
  check(other.width_ == width_ && other.inputs_ == inputs_, "join: states of {} numbers, not {}",
        other.width_, width_);
  type_ = other.type_;
  for (const int32_t s : sequences) all_.push_back(other.of(s));
}

bool ReplayedState::can_truncate(int64_t sequence, int64_t to) const {
  const Sequence& s = of(sequence);
  return to == 0 || (to >= s.before && to <= s.length);
}

void ReplayedState::truncate(int64_t sequence, int64_t length) {
  check(can_truncate(sequence, length), "truncate: a state of {} tokens cannot go back to {}",
        of(sequence).length, length);
  Sequence& s = all_[sequence];
  if (length == s.length) return;
  if (length < s.before) s = {};  // 0
  s.rows.resize((length - s.before) * inputs_);
  s.length = length;
  s.now = replayed(s.earlier, s.rows);
}

int64_t ReplayedState::bytes() const {
  std::set<const Floats*> states;
  int64_t numbers = 0;
  for (const Sequence& s : all_) {
    for (const State& state : {s.earlier, s.now})
      if (state && states.insert(state.get()).second) numbers += width_;
    numbers += std::ssize(s.rows);
  }
  return numbers * static_cast<int64_t>(sizeof(float));
}

std::vector<Tensor> ReplayedState::save() const {
  std::vector<int32_t> before, lengths;
  Floats states, rows;
  for (const Sequence& s : all_) {
    before.push_back(static_cast<int32_t>(s.before));
    lengths.push_back(static_cast<int32_t>(s.length));
    for (const State& state : {s.earlier, s.now}) {
      if (state)
        states.insert(states.end(), state->begin(), state->end());
      else
        states.resize(states.size() + width_);
    }
    rows.insert(rows.end(), s.rows.begin(), s.rows.end());
  }
  return {Tensor::of({sequences()}, before), Tensor::of({sequences()}, lengths),
          Tensor::of({2 * sequences(), width_}, states),
          convert(Tensor::of({std::ssize(rows) / inputs_, inputs_}, rows), type_)};
}

void ReplayedState::load(const std::vector<Tensor>& saved) {
  const auto is = [&](size_t i, DType type) { return saved[i].dtype() == type; };
  check(saved.size() == 4 && is(0, DType::i32) && is(1, DType::i32) && is(2, DType::f32) &&
            saved[0].shape().rank() == 1 && saved[1].shape() == saved[0].shape() &&
            saved[2].shape() == Shape({2 * saved[0].count(), width_}) && saved[3].shape().rank() == 2 &&
            saved[3].width() == inputs_,
        "states: expected lengths, i32, f32 [2 sequences, {}] and rows of {}", width_, inputs_);
  std::vector<Sequence> next;
  const Tensor all_rows = convert(saved[3], DType::f32);
  int64_t row = 0;
  for (int64_t s = 0; s < saved[0].count(); ++s) {
    Sequence q;
    q.before = saved[0].values<int32_t>()[s];
    q.length = saved[1].values<int32_t>()[s];
    const int64_t rows = q.length - q.before;
    check(q.before >= 0 && rows >= 0 && rows <= 2 * kKept && row + rows <= saved[3].rows(),
          "states: sequence {} has states of {} and {} tokens", s, q.before, q.length);
    const auto state_of = [&](int64_t i) {
      const auto from = saved[2].row<float>(2 * s + i);
      return std::make_shared<const Floats>(from.begin(), from.end());
    };
    q.earlier = state_of(0);
    q.now = state_of(1);
    const auto read = all_rows.values<float>().subspan(row * inputs_, rows * inputs_);
    q.rows.assign(read.begin(), read.end());
    row += rows;
    next.push_back(std::move(q));
  }
  check(row == saved[3].rows(), "states: {} rows of {} sequences, got {}", row, saved[0].count(),
        saved[3].rows());
  all_ = std::move(next);
  type_ = saved[3].dtype();
}

}  // namespace qkv

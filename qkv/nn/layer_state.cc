#include "qkv/nn/layer_state.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace qkv {
namespace {

void copy_rows(const Tensor& from, int64_t row, int64_t column, int64_t rows, Tensor& to, int64_t to_row) {
  const int64_t size = size_of(from.dtype()), bytes = to.width() * size;
  const auto* source = static_cast<const std::byte*>(from.raw()) + (row * from.width() + column) * size;
  auto* target = static_cast<std::byte*>(to.raw()) + to_row * bytes;
  for (int64_t r = 0; r < rows; ++r) std::memcpy(target + r * bytes, source + r * from.width() * size, bytes);
}

}  // namespace

KeyValueState::KeyValueState(int64_t sequences, int64_t kv_heads, int64_t d_qk, int64_t d_vo)
    : kv_heads_(kv_heads), d_qk_(d_qk), d_vo_(d_vo), lengths_(sequences, 0), runs_(sequences) {
  std::iota(runs_.begin(), runs_.end(), 0);
}

void KeyValueState::grow(int64_t capacity, DType dtype) {
  Tensor keys = Tensor::empty({sequences() * capacity, kv_heads_ * d_qk_}, dtype);
  Tensor values = Tensor::empty({sequences() * capacity, kv_heads_ * d_vo_}, dtype);
  for (int64_t s = 0; s < sequences() && keys_.defined(); ++s) {
    copy_rows(keys_, s * capacity_, 0, lengths_[s], keys, s * capacity);
    copy_rows(values_, s * capacity_, 0, lengths_[s], values, s * capacity);
  }
  keys_ = keys;
  values_ = values;
  capacity_ = capacity;
}

void KeyValueState::append(const Heads& k, const Heads& v, std::span<const int32_t> offsets) {
  check(static_cast<int64_t>(offsets.size()) == sequences() + 1, "key/value state: {} sequences, got {}",
        sequences(), offsets.size() - 1);
  for (int64_t s = 0; s < sequences(); ++s)
    check(runs_[s] == s, "key/value state: sequences that share keys cannot be appended to");
  check(!keys_.defined() || keys_.dtype() == k.x.dtype(), "key/value state: holds {}, got {}",
        name_of(keys_.dtype()), name_of(k.x.dtype()));
  int64_t needed = 0;
  for (int64_t s = 0; s < sequences(); ++s)
    needed = std::max<int64_t>(needed, lengths_[s] + offsets[s + 1] - offsets[s]);
  if (needed > capacity_ || !keys_.defined())
    grow(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(needed, 16)))),
         k.x.dtype());
  for (int64_t s = 0; s < sequences(); ++s) {
    const int64_t count = offsets[s + 1] - offsets[s], at = s * capacity_ + lengths_[s];
    copy_rows(k.x, offsets[s], k.column, count, keys_, at);
    copy_rows(v.x, offsets[s], v.column, count, values_, at);
    lengths_[s] += static_cast<int32_t>(count);
  }
}

KeyLayout KeyValueState::layout() const {
  KeyLayout layout;
  layout.lengths = lengths_;
  for (int64_t s = 0; s < sequences(); ++s) {
    layout.block_offsets.push_back(static_cast<int32_t>(s));
    layout.blocks.push_back(runs_[s] * capacity_);
  }
  return layout;
}

void KeyValueState::own() {
  if (!filled()) return;
  keys_ = keys_.clone();
  values_ = values_.clone();
}

std::unique_ptr<LayerState> KeyValueState::fork() const {
  auto copy = std::make_unique<KeyValueState>(*this);
  copy->own();
  return copy;
}

std::unique_ptr<LayerState> SourceState::fork() const {
  auto copy = std::make_unique<SourceState>(*this);
  copy->own();
  return copy;
}

void RecurrentState::append(const Tensor& states, std::span<const int32_t> offsets) {
  KeyValueState::append({states, 0, 1, states.width()},
                        {Tensor::empty({states.dim(0), 0}, states.dtype()), 0, 1, 0}, offsets);
}

Tensor RecurrentState::last() const {
  const Tensor all = keys().x;
  const KeyLayout where = layout();
  Tensor out = Tensor::empty({sequences(), all.width()}, all.dtype());
  for (int64_t s = 0; s < sequences(); ++s)
    copy_rows(all, where.blocks[s] + where.lengths[s] - 1, 0, 1, out, s);
  return out;
}

int64_t RecurrentState::length(int64_t sequence) const {
  return std::max<int64_t>(0, KeyValueState::length(sequence) - 1);
}

std::unique_ptr<LayerState> RecurrentState::fork() const {
  auto copy = std::make_unique<RecurrentState>(*this);
  copy->own();
  return copy;
}

void RecurrentState::truncate(int64_t sequence, int64_t length) {
  KeyValueState::truncate(sequence, length + (filled() ? 1 : 0));
}

void KeyValueState::reorder(std::span<const int32_t> sources) {
  KeyValueState next(static_cast<int64_t>(sources.size()), kv_heads_, d_qk_, d_vo_);
  if (keys_.defined()) next.grow(capacity_, keys_.dtype());
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t s = sources[i];
    check(s >= 0 && s < sequences(), "reorder: no sequence {}", s);
    next.lengths_[i] = lengths_[s];
    if (!keys_.defined()) continue;
    copy_rows(keys_, runs_[s] * capacity_, 0, lengths_[s], next.keys_, static_cast<int64_t>(i) * capacity_);
    copy_rows(values_, runs_[s] * capacity_, 0, lengths_[s], next.values_,
              static_cast<int64_t>(i) * capacity_);
  }
  *this = std::move(next);
}

void KeyValueState::share(std::span<const int32_t> sources) {
  std::vector<int32_t> lengths, runs;
  for (const int32_t s : sources) {
    check(s >= 0 && s < sequences(), "reorder: no sequence {}", s);
    lengths.push_back(lengths_[s]);
    runs.push_back(runs_[s]);
  }
  lengths_ = std::move(lengths);
  runs_ = std::move(runs);
}

void KeyValueState::truncate(int64_t sequence, int64_t length) {
  check(sequence >= 0 && sequence < sequences(), "truncate: no sequence {}", sequence);
  check(length >= 0 && length <= lengths_[sequence], "truncate: sequence {} has {} positions, got {}",
        sequence, lengths_[sequence], length);
  lengths_[sequence] = static_cast<int32_t>(length);
}

std::vector<Tensor> KeyValueState::save() const {
  const Tensor lengths = Tensor::of({sequences()}, lengths_);
  if (!keys_.defined()) return {lengths};
  KeyValueState apart = *this;  // a run for each sequence, in their order
  std::vector<int32_t> all(lengths_.size());
  std::iota(all.begin(), all.end(), 0);
  apart.KeyValueState::reorder(all);
  return {lengths, apart.keys_, apart.values_};
}

void KeyValueState::load(const std::vector<Tensor>& saved) {
  check(saved.size() == 1 || saved.size() == 3, "key/value state: expected lengths, keys and values");
  check(saved[0].dtype() == DType::i32 && saved[0].shape().rank() == 1,
        "key/value state: lengths must be i32 [sequences], got {} {}", name_of(saved[0].dtype()),
        saved[0].shape().text());
  for (size_t i = 1; i < saved.size(); ++i)
    check(saved[i].shape().rank() == 2 && saved[i].dtype() == saved[1].dtype() &&
              (saved[i].dtype() == DType::f32 || saved[i].dtype() == DType::bf16),
          "key/value state: keys and values must be f32 or bf16 [rows, width], got {} {}",
          name_of(saved[i].dtype()), saved[i].shape().text());
  const auto lengths = saved[0].values<int32_t>();
  KeyValueState next(static_cast<int64_t>(lengths.size()), kv_heads_, d_qk_, d_vo_);
  next.lengths_.assign(lengths.begin(), lengths.end());
  if (saved.size() == 3) {
    const int64_t rows = saved[1].dim(0);
    check(!lengths.empty() && rows % static_cast<int64_t>(lengths.size()) == 0 &&
              saved[1].width() == kv_heads_ * d_qk_ && saved[2].width() == kv_heads_ * d_vo_ &&
              saved[2].dim(0) == rows,
          "key/value state: saved tensors {} and {} do not fit", saved[1].shape().text(),
          saved[2].shape().text());
    next.capacity_ = rows / static_cast<int64_t>(lengths.size());
    next.keys_ = saved[1].clone();
    next.values_ = saved[2].clone();
  }
  for (const int32_t n : next.lengths_)
    check(n >= 0 && n <= next.capacity_, "key/value state: bad length {}", n);
  *this = std::move(next);
}

}  // namespace qkv

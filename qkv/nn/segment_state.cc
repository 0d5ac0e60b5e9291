#include "qkv/nn/segment_state.h"

#include <algorithm>
#include <numeric>

#include "qkv/ops/parts.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

// Rows of x [N, D], without gradients.
Tensor copied(const Tensor& x, const std::vector<int32_t>& rows) {
  Tensor out = Tensor::empty({std::ssize(rows), x.width()}, x.dtype());
  for (int64_t i = 0; i < std::ssize(rows); ++i) copy_rows(x, rows[i], 0, 1, out, i);
  return out;
}

void append_range(std::vector<int32_t>& to, int32_t begin, int32_t end) {
  for (int32_t i = begin; i < end; ++i) to.push_back(i);
}

}  // namespace

std::vector<int32_t> SegmentState::offsets() const {
  std::vector<int32_t> out(lengths_.size() + 1, 0);
  std::partial_sum(lengths_.begin(), lengths_.end(), out.begin() + 1);
  return out;
}

SegmentState::Place SegmentState::place(const Layout& x) const {
  check(x.sequences() == sequences(), "segment state: {} sequences, got {}", sequences(), x.sequences());
  std::vector<int32_t> lengths, own;
  int32_t row = 0;
  for (size_t s = 0; s < lengths_.size(); ++s) {
    const int32_t count = x.offsets[s + 1] - x.offsets[s];
    lengths.push_back(lengths_[s] + count);
    append_range(own, row + lengths_[s], row + lengths_[s] + count);
    row += lengths.back();
  }
  return {Layout::of(lengths), std::move(own)};
}

Tensor SegmentState::extended(const Tensor& x, const Layout& layout) {
  const Place where = place(layout);
  Tensor z = x;
  if (rows_.defined() && rows_.rows() > 0) {
    check(rows_.width() == x.width() && rows_.dtype() == x.dtype(), "segment state: holds {} {}, got {} {}",
          name_of(rows_.dtype()), rows_.shape(), name_of(x.dtype()), x.shape());
    const std::vector<int32_t> remembered = offsets();
    std::vector<int32_t> order;  // rows of Z, as rows of rows_ and then x
    for (size_t s = 0; s < lengths_.size(); ++s) {
      append_range(order, remembered[s], remembered[s + 1]);
      append_range(order, remembered.back() + layout.offsets[s], remembered.back() + layout.offsets[s + 1]);
    }
    z = select_rows(join_rows({rows_, x}), order);
  }
  read_ = z.detach();
  read_offsets_ = where.layout.offsets;
  return z;
}

void SegmentState::advance() {
  check(read_.defined(), "segment state: nothing was read");
  std::vector<int32_t> kept;
  for (size_t s = 0; s < lengths_.size(); ++s) {
    const int32_t end = read_offsets_[s + 1];
    lengths_[s] = static_cast<int32_t>(std::min<int64_t>(longest_, end - read_offsets_[s]));
    append_range(kept, end - lengths_[s], end);
  }
  rows_ = copied(read_, kept);
  read_ = Tensor();
}

void SegmentState::reorder(std::span<const int32_t> sources) {
  const std::vector<int32_t> from = offsets();
  std::vector<int32_t> lengths, kept;
  for (const int32_t s : sources) {
    check(s >= 0 && s < sequences(), "reorder: no sequence {}", s);
    lengths.push_back(lengths_[s]);
    append_range(kept, from[s], from[s + 1]);
  }
  if (rows_.defined()) rows_ = copied(rows_, kept);
  lengths_ = std::move(lengths);
}

void SegmentState::join(const LayerState& state, std::span<const int32_t> sequences) {
  const auto& other = joined_state<SegmentState>(state);
  check(other.longest_ == longest_, "join: a memory of {} rows, not {}", other.longest_, longest_);
  const std::vector<int32_t> from = other.offsets();
  std::vector<int32_t> rows;
  for (const int32_t s : sequences) {
    check(s >= 0 && s < other.sequences(), "join: no sequence {}", s);
    append_range(rows, from[s], from[s + 1]);
    lengths_.push_back(other.lengths_[s]);
  }
  if (rows.empty()) return;
  const Tensor theirs = copied(other.rows_, rows);
  rows_ = rows_.defined() && rows_.rows() > 0 ? join_rows({rows_, theirs}) : theirs;
}

// The remembered rows are a sequence's last ones. Forgetting those from `length` on leaves the first ones.
void SegmentState::truncate(int64_t sequence, int64_t length) {
  check(sequence >= 0 && sequence < sequences(), "truncate: no sequence {}", sequence);
  check(length >= 0 && length <= lengths_[sequence], "truncate: sequence {} has {} positions, got {}",
        sequence, lengths_[sequence], length);
  const std::vector<int32_t> from = offsets();
  lengths_[sequence] = static_cast<int32_t>(length);
  std::vector<int32_t> kept;
  for (size_t s = 0; s < lengths_.size(); ++s) append_range(kept, from[s], from[s] + lengths_[s]);
  if (rows_.defined()) rows_ = copied(rows_, kept);
}

std::vector<Tensor> SegmentState::save() const {
  const Tensor lengths = Tensor::of({sequences()}, lengths_);
  return rows_.defined() ? std::vector<Tensor>{lengths, rows_} : std::vector<Tensor>{lengths};
}

void SegmentState::load(const std::vector<Tensor>& saved) {
  check(saved.size() == 1 || saved.size() == 2, "segment state: expected lengths and rows");
  check(saved[0].dtype() == DType::i32 && saved[0].shape().rank() == 1,
        "segment state: lengths must be i32 [sequences], got {} {}", name_of(saved[0].dtype()),
        saved[0].shape());
  const auto lengths = saved[0].values<int32_t>();
  int64_t all = 0;
  for (const int32_t n : lengths) {
    check(n >= 0 && n <= longest_, "segment state: bad length {}", n);
    all += n;
  }
  if (saved.size() == 2)
    check(saved[1].shape().rank() == 2 && saved[1].rows() == all &&
              (saved[1].dtype() == DType::f32 || saved[1].dtype() == DType::bf16),
          "segment state: expected {} rows of f32 or bf16, got {} {}", all, name_of(saved[1].dtype()),
          saved[1].shape());
  check(saved.size() == 2 || all == 0, "segment state: {} rows are missing", all);
  lengths_.assign(lengths.begin(), lengths.end());
  rows_ = saved.size() == 2 ? saved[1].clone() : Tensor();
  read_ = Tensor();
}

}  // namespace qkv

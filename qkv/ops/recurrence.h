// Recurrences over the sequences of a flat batch.
#pragma once

#include <span>
#include <vector>

#include "qkv/ops/recurrence_spec.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// The rows of a flat batch by time. Step t takes rows[starts[t]], ..., rows[starts[t + 1] - 1], one of each
// sequence that still runs. These are the first ones of `sequences`, which are sorted from the longest to
// the shortest.
struct TimeOrder {
  std::vector<int32_t> sequences, rows;
  std::vector<int64_t> starts = {0};  // [steps + 1]

  int64_t steps() const { return static_cast<int64_t>(starts.size()) - 1; }
  int64_t running(int64_t step) const { return starts[step + 1] - starts[step]; }
  // The order for sequences s with rows [offsets[s], offsets[s + 1]); `backwards`: from their last rows on.
  static TimeOrder of(std::span<const int32_t> offsets, bool backwards = false);
};

// The results of a recurrence for each row.
struct RecurrenceResult {
  Tensor hidden;  // h [N, D], of the input's type
  Tensor states;  // f32 [N, parts D]: h, for an LSTM then c
};

// x [N, gates D]: the inputs of the gates; weight U [gates D, D] of x's type; first f32
// [sequences, parts D]: the state before the first row, undefined: zeros. `backwards`: from a sequence's
// last row to its first. Throws Error for shapes and types that do not fit.
RecurrenceResult recurrence(Cell cell, const Tensor& x, const Tensor& weight, const Tensor& first,
                            std::span<const int32_t> offsets, bool backwards = false);

}  // namespace qkv

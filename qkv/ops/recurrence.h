// Recurrences over the sequences of a flat batch.
#pragma once

#include <span>
#include <vector>

#include "qkv/tensor/tensor.h"

namespace qkv {

// The step of a recurrence, given the inputs a of its gates and its state h of D numbers. The products U h
// are first added to a; s is the logistic function.
enum class Cell : uint8_t {
  none,  // there is no recurrence
  lstm,  // a = [i, f, o, g]: c = s(f) c + s(i) tanh(g), h = s(o) tanh(c) (Hochreiter & Schmidhuber 1997 with
         // the forget gate of Gers et al. 2000)
  gru,   // a = [z, r, n], with s(r) h for h in n: h = (1 - s(z)) h + s(z) tanh(n) (Cho et al. 2014,
         // as printed by Bahdanau et al. 2015, A.1.1)
};
// Inputs of the gates, as a multiple of D.
constexpr int64_t gates_of(Cell cell) {
  return cell == Cell::lstm ? 4 : 3;
}
// Numbers of the state, as a multiple of D: h, for an LSTM then c.
constexpr int64_t state_parts(Cell cell) {
  return cell == Cell::lstm ? 2 : 1;
}

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

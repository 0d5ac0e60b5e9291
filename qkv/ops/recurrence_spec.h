// The cells of recurrences (ops/recurrence.h).
#pragma once

#include <cstdint>

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

}  // namespace qkv

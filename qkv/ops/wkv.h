// The weighted mean of RWKV-4: values of all tokens so far, those long ago faded, the present one favoured.
#pragma once

#include <span>

#include "qkv/tensor/tensor.h"

namespace qkv {

// With w = -exp(log_rates) and u = bonus, channel by channel:
//   y_t = (A_{t-1} + exp(u + k_t) v_t) / (B_{t-1} + exp(u + k_t)),
//   A_t = exp(w) A_{t-1} + exp(k_t) v_t,   B_t = exp(w) B_{t-1} + exp(k_t)
// (Peng et al. 2023, RWKV, eq. 16 and appendix D).
struct WkvInput {
  Tensor k, v;       // [N, D] of one type
  Tensor log_rates;  // f32 [D]
  Tensor bonus;      // f32 [D]
};

// A state is a row of 3 D numbers a, b and p of A = a exp(p) and B = b exp(p), so that nothing overflows.
struct WkvResult {
  Tensor y;       // [N, D], of v's type
  Tensor state;   // f32 [sequences, 3 D]: the last one
  Tensor marked;  // the same after the steps that were marked; undefined if none were
};

// Sequence s has rows [offsets[s], offsets[s + 1]). first: f32 [sequences, 3 D], undefined: zeros. A row
// whose b is 0 means that nothing was read. Gradients reach all that are defined; one of the state counts as
// one of A and B. `marks`: a number of tokens of each sequence, after which its state is wanted, too; empty:
// none. The bits of y do not depend on how a sequence is cut into calls. Throws Error for shapes and types
// that do not fit.
WkvResult wkv(const WkvInput& in, const Tensor& first, std::span<const int32_t> offsets,
              std::span<const int32_t> marks = {});

}  // namespace qkv

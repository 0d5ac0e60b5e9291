// The selective scan of Mamba: a linear recurrence in every channel, whose step, input and output depend on
// the token.
#pragma once

#include <span>

#include "qkv/tensor/tensor.h"

namespace qkv {

// With n numbers of state a channel, A = -exp(log_rates):
//   h_t = exp(step_t A) h_{t-1} + step_t x_t B_t,   y_t = h_t . C_t + skip x_t
// (Gu & Dao 2023, Algorithm 2). Channels have `groups` B and C, neighbours the same.
struct SelectiveScanInput {
  Tensor x;          // [N, D]
  Tensor steps;      // f32 [N, D], above 0
  Tensor log_rates;  // f32 [D, n]
  Tensor B, C;       // [N, groups n], of x's type
  Tensor skip = {};  // f32 [D]; undefined: zeros
};

struct SelectiveScanResult {
  Tensor y;       // [N, D], of x's type
  Tensor state;   // f32 [sequences, D n]: the last h
  Tensor marked;  // the same after the steps that were marked; undefined if none were
};

// Sequence s has rows [offsets[s], offsets[s + 1]). first: f32 [sequences, D n], undefined: zeros. Gradients
// reach all that are defined. `marks`: a number of tokens of each sequence, after which its state is wanted,
// too; empty: none. The bits of y do not depend on how a sequence is cut into calls. Throws Error for shapes
// and types that do not fit.
SelectiveScanResult selective_scan(const SelectiveScanInput& in, const Tensor& first,
                                   std::span<const int32_t> offsets, std::span<const int32_t> marks = {});

}  // namespace qkv

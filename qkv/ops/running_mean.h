// The mean of each row and those before it.
#pragma once

#include <span>

#include "qkv/tensor/tensor.h"

namespace qkv {

struct RunningMean {
  Tensor mean;  // [N, D], of x's type
  Tensor sums;  // f32 [N, D]: what goes on from; where `first` was given
};

// x [N, D] of sequences with the rows [offsets[s], offsets[s + 1]) -> of each row the mean of its sequence's
// rows up to it. first f32 [S, D]: the sum of counts[s] rows before these; undefined: there are none. No
// gradient reaches `first`. Throws Error for shapes and types that do not fit.
RunningMean running_mean(const Tensor& x, std::span<const int32_t> offsets, const Tensor& first = {},
                         std::span<const int64_t> counts = {});

}  // namespace qkv

// Short convolutions along a sequence: each channel by itself, over a token and the few before it.
#pragma once

#include <span>

#include "qkv/tensor/tensor.h"

namespace qkv {

// y_t = bias + sum_j w_j x_{t-K+1+j}, j in [0, K), channel by channel. x [N, C], of any floating type;
// weight f32 [C, K]; bias f32 [C] or undefined. Sequence s has rows [offsets[s], offsets[s + 1]); before
// them come those of `first` f32 [sequences, (K - 1) C], the oldest first; undefined: zeros. Gradients reach
// all that are defined. The bits of y do not depend on how a sequence is cut into calls. Throws Error for
// shapes and types that do not fit.
Tensor short_convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& first,
                         std::span<const int32_t> offsets);

// The K - 1 rows behind which each sequence would go on after `counts[s]` of its rows, as `first` above:
// f32 [sequences, (K - 1) C]. Without a gradient.
Tensor convolution_tail(const Tensor& x, const Tensor& first, std::span<const int32_t> offsets,
                        std::span<const int32_t> counts, int64_t kernel);

}  // namespace qkv

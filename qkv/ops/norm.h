// The residual addition and the normalisation after it, in one pass.
#pragma once

#include "qkv/kernels/kernels.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// The residual stream after a branch was added, and its norm. Both [N, D].
struct ResidualNormResult {
  Tensor sum;         // x + dropout(branch); x itself where there is no branch
  Tensor normalized;  // layer_norm(sum | gamma, beta), or RMSnorm(sum | gamma)
};

// x, branch [N, D] (branch may be undefined); gamma, beta f32 [D]; beta undefined: RMSnorm. Algorithm 6 of
// Phuong & Hutter with variance + epsilon under the root.
ResidualNormResult residual_norm(const Tensor& x, const Tensor& branch, const Dropout& dropout,
                                 const Tensor& gamma, const Tensor& beta, float epsilon);

// x f32 [1] -> f32 [count]: so often.
Tensor repeated(const Tensor& x, int64_t count);

}  // namespace qkv

// x W^T + b.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, in], weight [out, in] of x's type, bias f32 [out] or undefined -> [N, out] of type `out_type`
// (x's own, or f32 for logits). The paper's W X + b 1^T with tokens in rows.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, DType out_type);
inline Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear(x, weight, bias, x.dtype());
}

}  // namespace qkv

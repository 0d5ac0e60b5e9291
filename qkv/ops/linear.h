// x W^T + b.
#pragma once

#include "qkv/tensor/weight.h"

namespace qkv {

// Outputs [begin, end) whose bias is known to have no gradient: what rounding would leave of it is not
// computed.
struct IdleBias {
  int64_t begin = 0, end = 0;
};

// x [N, in], weight [out, in], bias f32 [out] or undefined -> [N, out] of type `out_type` (x's own, or f32
// for logits). The paper's W X + b 1^T with tokens in rows. The weight is of x's type, or quantised; for f32
// also f16 or bf16. Quantised weights have no gradient; that of x takes their rounding of x as the identity.
Tensor linear(const Tensor& x, const Weight& weight, const Tensor& bias, DType out_type, IdleBias idle = {});
inline Tensor linear(const Tensor& x, const Weight& weight, const Tensor& bias, IdleBias idle = {}) {
  return linear(x, weight, bias, x.dtype(), idle);
}

}  // namespace qkv

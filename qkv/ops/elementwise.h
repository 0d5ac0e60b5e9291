// Row-wise ops without weights: they cannot see where a sequence ends.
#pragma once

#include "qkv/kernels/kernels.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// x in another floating type; the gradient is converted back.
Tensor convert(const Tensor& x, DType dtype);
// x + y, same shape and type.
Tensor add(const Tensor& x, const Tensor& y);
// factor x.
Tensor scaled(const Tensor& x, float factor);
// x, in [-limit, limit]: what lies beyond is cut off, and has no gradient. limit > 0.
Tensor clipped(const Tensor& x, float limit);
// f(x) element by element.
Tensor activation(Activation kind, const Tensor& x);
// x [N, 2 H] -> [N, H]: f of the first half of each row times the second half (Shazeer 2020, "GLU variants").
Tensor gated(Activation kind, const Tensor& x);
// x [N, 2 H] = [a, b] -> [N, 2 H]: min(a, limit), then b in [-limit, limit] plus 1 (gpt-oss). Numbers that
// are cut off have no gradient. limit > 0.
Tensor limited_gate(const Tensor& x, float limit);
// x with elements dropped, the others scaled by 1 / (1 - p). [rows, width]
Tensor dropout(const Tensor& x, const Dropout& dropout);

}  // namespace qkv

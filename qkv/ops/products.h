// Products of rows: element by element, and head by head.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// x y element by element, same shape and type.
Tensor product(const Tensor& x, const Tensor& y);

// Each head of x [N, H d] times its factor: factors f32 [N, H], or [H] for all rows.
Tensor scaled_heads(const Tensor& x, const Tensor& factors);

// The dot products of the heads of x and y, [N, H d] of one type -> f32 [N, H]. Throws Error if the heads do
// not fit.
Tensor head_dots(const Tensor& x, const Tensor& y, int64_t heads);

}  // namespace qkv

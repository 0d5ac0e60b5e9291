// xIELU: an activation function with two learned numbers (Huang & Schlag 2025, eq. 6; Apertus).
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// Starting values of alpha_p and alpha_n: the slopes' growth is then 0.8 on both sides.
inline constexpr float kXieluAbove = 0.20338232F;  // ln(e^0.8 - 1)
inline constexpr float kXieluBelow = -1.0502256F;  // ln(e^(0.8 - 0.5) - 1)

// Element by element, with beta = 0.5 and softplus(a) = ln(1 + e^a):
//   softplus(alpha_p) x^2 + beta x,                         x > 0
//   (beta + softplus(alpha_n)) (e^x - 1 - x) + beta x,      x <= 0
// alpha_p, alpha_n f32 [1].
Tensor xielu(const Tensor& x, const Tensor& alpha_p, const Tensor& alpha_n);

}  // namespace qkv

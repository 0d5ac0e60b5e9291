// Weights as dense tensors.
#pragma once

#include "qkv/tensor/weight.h"

namespace qkv {

// The numbers of a weight of any type, as f32 or bf16; without a gradient. A dense weight of that type is
// returned as it is.
Tensor dequantized(const Weight& weight, DType type);

}  // namespace qkv

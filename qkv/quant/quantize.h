// Numbers to blocks and back, a row at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/tensor/weight_type.h"

namespace qkv {

// Numbers x[0, n) of a row of blocks. REQUIRES: n is a multiple of the type's elements. Also f16 and bf16.
void dequantize_row(WeightType type, const std::byte* blocks, int64_t n, float* x);

// Blocks of a row x[0, n). `importance` [n] weighs the squared error of each column (the mean of the squares
// of the activations that meet it), or is null. Gives the bytes that ggml_quantize_chunk() of llama.cpp
// gives. REQUIRES: n is a multiple of the type's elements, and x is finite.
void quantize_row(WeightType type, int64_t n, const float* x, const float* importance, std::byte* blocks);

}  // namespace qkv

// Neighbouring rows side by side: what a convolution over a sequence multiplies.
#pragma once

#include <vector>

#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, C], sequence s its rows [offsets[s], offsets[s + 1]) -> [M, C size]: row t of a sequence is, of each
// column, what its rows stride t - size / 2, ... have, 0 beyond its ends; a sequence of n rows has (n - 1) /
// stride + 1. `size` is odd. The order is that of a convolution's kernel [out, C, size].
Tensor row_windows(const Tensor& x, const std::vector<int32_t>& offsets, int64_t size, int64_t stride);

}  // namespace qkv

// Positions in two dimensions.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// positions i32 [N] of tokens that stand in rows of `columns` each -> i32 [N, 2]: row and column.
Tensor grid_positions(const Tensor& positions, int64_t columns);

}  // namespace qkv

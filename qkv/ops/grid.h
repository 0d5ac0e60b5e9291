// Positions in two dimensions.
#pragma once

#include "qkv/tensor/indices.h"

namespace qkv {

// positions [N] of tokens that stand in rows of `columns` each -> [N, 2]: row and column.
Indices grid_positions(const Indices& positions, int64_t columns);

}  // namespace qkv

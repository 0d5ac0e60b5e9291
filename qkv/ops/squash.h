// The squash function of capsules, row by row.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, D] -> [N, D]: of each row n / (1 + n) x / sqrt(n), n its squared norm plus epsilon: short rows become
// shorter, long ones about 1 (Sabour et al. 2017, eq. 1).
Tensor squash(const Tensor& x, float epsilon);

}  // namespace qkv

// Products with a matrix of low rank, added to what another product made (Hu et al. 2022, LoRA).
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, in], a [rank, in], b [out, rank], y [N, C] of one type -> y with scale B A x added to its columns
// [begin, begin + out), tokens in rows; in y's own memory, which nobody else may read any more: not the op
// that made y for its gradient either.
Tensor add_low_rank(Tensor y, const Tensor& x, const Tensor& a, const Tensor& b, float scale, int64_t begin);

}  // namespace qkv

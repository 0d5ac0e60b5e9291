// The norms of queries and keys inside a fused projection.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, C]: each group of `width` columns, `groups` of them from column `first`, is divided by its root mean
// square and multiplied by gamma f32 [width], which all groups share, or [groups width]; all other columns as
// they are. Zhang & Sennrich 2019 (RMSNorm) with epsilon under the root.
Tensor group_rms_norm(const Tensor& x, int64_t first, int64_t groups, int64_t width, const Tensor& gamma,
                      float epsilon);

}  // namespace qkv

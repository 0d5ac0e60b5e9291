// The norms of queries and keys inside a fused projection.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// The groups of columns of x [N, C] that are normalised: `groups` of `width`, from column `first`.
struct ColumnGroups {
  int64_t first, groups, width;
};

// x [N, C]: each group is divided by its root mean square and multiplied by gamma f32 [width], which all
// groups share, or [groups width]; all other columns as they are. Zhang & Sennrich 2019 (RMSNorm) with
// epsilon under the root.
Tensor group_rms_norm(const Tensor& x, const ColumnGroups& at, const Tensor& gamma, float epsilon);

// The same of Algorithm 6 of Phuong & Hutter, each group centred first; beta f32 of gamma's shape, or
// undefined.
Tensor group_layer_norm(const Tensor& x, const ColumnGroups& at, const Tensor& gamma, const Tensor& beta,
                        float epsilon);

}  // namespace qkv

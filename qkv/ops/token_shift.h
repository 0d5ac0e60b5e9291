// Token shift: a token's row and the one before it, mixed.
#pragma once

#include <span>

#include "qkv/tensor/tensor.h"

namespace qkv {

// The row before each row of x [N, D], of x's type. Sequence s has rows [offsets[s], offsets[s + 1]); before
// them comes row s of `first` f32 [sequences, D], undefined: zeros. Throws Error for shapes and types that do
// not fit.
Tensor previous_rows(const Tensor& x, const Tensor& first, std::span<const int32_t> offsets);

// from + part (to - from), element by element. from, to [N, D] of one type; part f32 [D], or [N, D] of their
// type. Throws Error for shapes and types that do not fit.
Tensor mixed(const Tensor& from, const Tensor& to, const Tensor& part);

}  // namespace qkv

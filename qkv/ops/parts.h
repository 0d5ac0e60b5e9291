// Tensors cut apart, and put together.
#pragma once

#include <span>
#include <vector>

#include "qkv/tensor/tensor.h"

namespace qkv {

// x [N, C] -> its columns [begin, end): [N, end - begin].
Tensor columns_of(const Tensor& x, int64_t begin, int64_t end);
// x [N, C], y [N, D] of x's type -> [N, C + D]: each row of x, then of y.
Tensor join_columns(const Tensor& x, const Tensor& y);

// x's elements in another shape of as many.
Tensor reshaped(const Tensor& x, Shape shape);

// x [N, D] -> its rows in parts of so many rows, which must be N together.
std::vector<Tensor> split_rows(const Tensor& x, std::span<const int64_t> counts);
// The rows of one part after the other; all have one width and type. At least one part.
Tensor join_rows(const std::vector<Tensor>& parts);

}  // namespace qkv

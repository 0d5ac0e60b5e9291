// Table look-ups.
#pragma once

#include "qkv/tensor/indices.h"
#include "qkv/tensor/weight.h"

namespace qkv {

// ids [N], table [V, D] -> [N, D] of type `type`: row ids[n] of the table (Algorithms 1 and 2 of Phuong &
// Hutter). Throws Error where an id is out of range; `what` names it ("token id", "position"). A table that
// needs a gradient is of that type.
Tensor embedding(const Indices& ids, const Weight& table, const char* what, DType type);
// The same in the type of a dense table.
inline Tensor embedding(const Indices& ids, const Tensor& table, const char* what) {
  return embedding(ids, table, what, table.dtype());
}

}  // namespace qkv

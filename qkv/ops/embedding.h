// Table look-ups.
#pragma once

#include "qkv/tensor/indices.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// ids [N], table [V, D] -> [N, D]: row ids[n] of the table (Algorithms 1 and 2 of Phuong & Hutter).
// Throws Error where an id is out of range; `what` names it ("token id", "position").
Tensor embedding(const Indices& ids, const Tensor& table, const char* what);

}  // namespace qkv

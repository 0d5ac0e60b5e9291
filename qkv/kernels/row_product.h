// Products of activations by a weight in which each row has bits of its own.
#pragma once

#include "qkv/kernels/gemm.h"

namespace qkv {

// Rows up to which row_product() is the fastest: the time is that of reading the weight once.
inline constexpr int64_t kFewRows = 8;

// True for A [m, k] of rows in f32 or bf16, and a weight B [n, k], transposed, in f32 or bf16, of 16 rows and
// columns at least. Not for many rows where products by tiles or of bf16 are much faster, nor without SIMD.
bool row_product_takes(const Product&);

// C as matrix_product() gives it. The bits of a row of C depend on that row of A and on B alone: not on the
// other rows, nor on the number of threads. They differ between instruction sets. With many rows it takes up
// to a third longer than matrix_product(). REQUIRES: row_product_takes().
void row_product(const Product&);

}  // namespace qkv

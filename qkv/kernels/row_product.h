// Products of activations by a weight in which each row has bits of its own.
#pragma once

#include "qkv/kernels/gemm.h"

namespace qkv {

// True for A [m, k] of rows in f32 and a weight B [n, k], transposed, in f32, f16 or bf16, or for both in
// bf16; m and k >= 1. Not for many rows of bf16 on processors that multiply bf16 much faster.
bool row_product_takes(const Product&);

// C as matrix_product() gives it. The bits of a row of C depend on that row of A and on B alone: not on the
// other rows, nor on the number of threads. They differ between instruction sets. With many rows it takes up
// to a third longer than matrix_product(). REQUIRES: row_product_takes(), and C overlaps neither A nor B.
void row_product(const Product&);

}  // namespace qkv

// Products of activations by quantised weights.
#pragma once

#include "qkv/kernels/gemm.h"

namespace qkv {

// C[m, n] = A[m, k] B[n, k]^T + bias[n] for quantised B, added to C when `accumulate`.
//
// The arithmetic is the same for every instruction set, number of rows and number of threads. Rows of A are
// quantised to 8 bits in blocks as long as B's. A block of B is integers w with a factor d, and for some
// types minima u with a factor m; one of A is integers x with a factor e. Sums within a block are of
// integers, and so exact. Then
//   y <- fma(d e, sum_i w_i x_i, y),   and where B has minima   y <- fma(m e, sum_i u_i x_i, y),
// block after block in f32, from y = 0; at last the bias and the old C are added. formal/quantized.h states
// the same.
void quantized_product(const Product&);

}  // namespace qkv

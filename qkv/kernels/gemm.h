// Matrix products. The only file pair that knows oneDNN.
#pragma once

#include <cstdint>

#include "qkv/tensor/dtype.h"

namespace qkv {

// C[m, n] = A[m, k] B[k, n] + bias[n], added to C when `accumulate`.
// A and B are both f32 or both bf16; C is f32, or bf16 when A and B are; sums are in f32.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::f32, out = DType::f32;
  const void* a = nullptr;
  int64_t a_stride = 0;       // elements between stored rows
  bool a_transposed = false;  // stored as [k, m]
  const void* b = nullptr;
  int64_t b_stride = 0;
  bool b_transposed = false;  // stored as [n, k], as weights [out, in] are
  const float* bias = nullptr;
  void* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
};

// Uses all threads; tiles where they are faster (tile_product.h), else oneDNN. Throws Error when that fails.
void matrix_product(const Product&);

// oneDNN's, whatever the shape. REQUIRES: m, n and k >= 1.
void onednn_product(const Product&);

// The plain triple loop: the oracle, and what runs under ThreadSanitizer.
void generic_matrix_product(const Product&);

}  // namespace qkv

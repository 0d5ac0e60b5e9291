// Matrix products. The only file pair that knows oneDNN.
#pragma once

#include <cstdint>

#include "qkv/tensor/weight_type.h"

namespace qkv {

// C[m, n] = A[m, k] B[k, n] + bias[n], added to C when `accumulate`.
// A is f32 or bf16; C is f32, or bf16 when A is; sums are in f32. B is of A's type or quantised, or f16 or
// bf16 beside an f32 A. Weights [out, in] are B transposed. Products by quantised weights are those of
// kernels/quantized_product.h; where B is quantised and not transposed, its numbers are decoded.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  DType out = DType::f32;
  MatrixView a = {}, b = {};
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

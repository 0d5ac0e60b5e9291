// Helpers that every op shares: choosing the element type, and naming shapes in errors.
#pragma once

#include <string_view>

#include "qkv/base/error.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/tensor/indices.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// Calls f(T{}) with T = float or BFloat16. Any other type is the caller's error.
template <typename F>
decltype(auto) with_float_type(std::string_view op, DType t, F&& f) {
  check(t == DType::f32 || t == DType::bf16, "{}: expected f32 or bf16, got {}", op, name_of(t));
  return t == DType::bf16 ? f(BFloat16{}) : f(float{});
}

// Throws Error naming the op and the tensor ("linear: weight must be [4, 8], got [8, 4]") where x is
// undefined or of another shape.
inline void expect_shape(std::string_view op, std::string_view what, const Tensor& x, const Shape& shape) {
  check(x.defined() && x.shape() == shape, "{}: {} must be {}, got {}", op, what, shape, x);
}

inline void expect_shape(std::string_view op, std::string_view what, const Indices& x, const Shape& shape) {
  check(x.defined() && x.shape() == shape, "{}: {} must be {}, got {}", op, what, shape, x);
}

// The same for the element type.
inline void expect_dtype(std::string_view op, std::string_view what, const Tensor& x, DType t) {
  check(x.dtype() == t, "{}: {} must be {}, got {}", op, what, name_of(t), name_of(x.dtype()));
}

// Rows [first_row, ...) of x as products read them.
inline MatrixView matrix(const Tensor& x, int64_t first_row = 0, bool transposed = false) {
  return dense(x.raw(), x.dtype(), x.width(), transposed).from(first_row, 0);
}

// Elements a thread should have at least, for passes that cost a few operations an element.
inline constexpr int64_t kElementGrain = 1 << 14;
inline constexpr int64_t kFunctionCost = 4;  // an element's exponential or rotation
inline int64_t row_grain(int64_t width) {
  return std::max<int64_t>(1, kElementGrain / std::max<int64_t>(1, width));
}

}  // namespace qkv

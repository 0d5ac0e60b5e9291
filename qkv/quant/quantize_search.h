// The searches for scales that the block formats share. They follow ggml's step by step (LICENSE.ggml), for
// its bytes: the order of every sum, the width of every integer and each comparison are part of the format's
// encoder.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace qkv::quant {

// Groups hold at most this many numbers.
inline constexpr int kMaxGroup = 32;
// A group whose numbers are all smaller is taken for zeros.
inline constexpr float kZeroGroup = 1e-15f;

// x[0, n), and what each squared error counts: weights[0, n), or the number's own square if there are none.
struct Group {
  const float* x;
  const float* weights;
  int n;
};

// The nearest integer, ties to even, of a number within 2^22. Others give some integer, the same as ggml's.
inline int nearest(float x) {
  return (std::bit_cast<int32_t>(x + 12582912.0f) & 0x007FFFFF) - 0x00400000;
}

// The cast to an integer as x86 does it, defined for all numbers: INT_MIN for those out of range and for NaN.
inline int32_t truncate(float x) {
  return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<int32_t>(x)
                                                  : std::numeric_limits<int32_t>::min();
}

// The number of largest magnitude, the first of equals; 0 for none.
inline float extreme(const float* x, int n) {
  float magnitude = 0, number = 0;
  for (int i = 0; i < n; ++i) {
    if (const float a = std::fabs(x[i]); a > magnitude) {
      magnitude = a;
      number = x[i];
    }
  }
  return number;
}

// From left to right.
inline float sum(const float* x, int n) {
  float total = 0;
  for (int i = 0; i < n; ++i) total += x[i];
  return total;
}
inline float sum_of_squares(const float* x, int64_t n) {
  float total = 0;
  for (int64_t i = 0; i < n; ++i) total += x[i] * x[i];
  return total;
}

// weights[i] = importance[i] * sqrt(variance + x[i]^2), for i in [0, n).
inline void weigh(const float* x, const float* importance, float variance, int n, float* weights) {
  for (int i = 0; i < n; ++i) weights[i] = importance[i] * std::sqrt(variance + x[i] * x[i]);
}

// Scale s for x(i) ~ s * l(i) with l in [-bound, bound): tries 19 steps around that of the extreme number.
// Writes l(i) + bound to levels [n], all 0 for a group of zeros. (make_qx_quants)
float fit_scale(const Group& group, int bound, int8_t* levels);

// The same by moving one level at a time where that lowers the error, at most five rounds; weighs by the
// squares. (make_q3_quants)
float fit_scale_by_moves(const float* x, int n, int bound, int8_t* levels);

// Scale s >= 0 for numbers x(i) ~ s * l(i), l in [0, top], which are not negative. Writes l. (make_qp_quants)
float fit_positive_scale(const Group& group, int top, uint8_t* levels);

// x(i) ~ scale * l(i) - min.
struct Affine {
  float scale, min;
};

// The scales that fit_affine() tries: (max - min) / (top + first + k * step), for k in [0, steps].
struct AffineGrid {
  int top;
  float first, step;
  int steps;
  bool absolute = false;  // errors are not squared
};

// Scale and min >= 0 for l in [0, top]. Writes l. Needs weights. (make_qkx2_quants and make_qkx3_quants)
Affine fit_affine(const Group& group, const AffineGrid& grid, uint8_t* levels);

}  // namespace qkv::quant

#pragma once

// Products of activations by quantised weights, as the engine computes them whatever the instruction set, the
// number of rows and the number of threads. Scalars are f32, and each operation rounds to it.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "formal/notation.h"

namespace qkv::formal {

// One block of a weight's row: number i of N is d w_i + m u_{i / 16}, with integers w and u. Types without
// minima have no u.
struct WeightBlock {
  float d = 0, m = 0;
  std::vector<int> w = {}, u = {};
};

// One block of activations: number i is e x_i, with x_i in [-127, 127].
struct ActivationBlock {
  float e = 0;
  std::vector<int> x = {};
};

// e = max |a_i| / 127 and x_i = a_i / e, to nearest, ties to even. Blocks below 2^-100 are 0, as their
// inverse is not a number.
inline ActivationBlock Quantize(const std::vector<float>& a) {
  float most = 0;
  for (const float v : a) most = std::max(most, std::abs(v));
  ActivationBlock block{.e = most < 0x1p-100F ? 0 : most / 127, .x = std::vector<int>(a.size(), 0)};
  if (block.e == 0) return block;
  const float inverse = 127 / most;
  for (size_t i = 0; i < a.size(); ++i) block.x[i] = static_cast<int>(std::nearbyint(a[i] * inverse));
  return block;
}

// y = sum over blocks of (d e) (sum_i w_i x_i) + (m e) (sum_i u_{i / 16} x_i), block after block, with one
// rounding per term (fused multiply-add). The sums of integers are exact, and are rounded once to f32.
inline float QuantizedDot(const std::vector<WeightBlock>& weights,
                          const std::vector<ActivationBlock>& activations) {
  float y = 0;
  for (size_t b = 0; b < weights.size(); ++b) {
    const WeightBlock& weight = weights[b];
    const ActivationBlock& activation = activations[b];
    int64_t dot = 0, minima = 0;
    for (size_t i = 0; i < weight.w.size(); ++i) {
      dot += int64_t{weight.w[i]} * activation.x[i];
      if (!weight.u.empty()) minima += int64_t{weight.u[i / 16]} * activation.x[i];
    }
    y = std::fma(weight.d * activation.e, static_cast<float>(dot), y);
    if (!weight.u.empty()) y = std::fma(weight.m * activation.e, static_cast<float>(minima), y);
  }
  return y;
}

// The numbers of a row of a weight.
inline Vector<double> Decoded(const std::vector<WeightBlock>& blocks) {
  std::vector<double> numbers;
  for (const WeightBlock& block : blocks)
    for (size_t i = 0; i < block.w.size(); ++i)
      numbers.push_back(double{block.d} * block.w[i] +
                        (block.u.empty() ? 0 : double{block.m} * block.u[i / 16]));
  return Eigen::Map<const Vector<double>>(numbers.data(), static_cast<Index>(numbers.size()));
}

// The value of a scalar, without its derivative.
template <typename T>
double Value(const T& x) {
  if constexpr (std::is_arithmetic_v<T>)
    return x;
  else
    return x.value();
}

// W x for the rows of W. Its value is QuantizedDot's. Its derivative takes the rounding of x as the identity:
// it is that of the decoded W, and what rounding changes is a constant (a straight-through estimator).
template <typename T>
Vector<T> QuantizedProduct(const std::vector<std::vector<WeightBlock>>& W, const Vector<T>& x) {
  std::vector<float> numbers;
  Vector<double> constant(x.size());
  for (Index i = 0; i < x.size(); ++i) {
    constant[i] = Value(x[i]);
    numbers.push_back(static_cast<float>(constant[i]));
  }
  const size_t size = W.front().front().w.size();
  std::vector<ActivationBlock> activations;
  for (auto at = numbers.begin(); at != numbers.end(); at += static_cast<std::ptrdiff_t>(size))
    activations.push_back(Quantize({at, at + static_cast<std::ptrdiff_t>(size)}));
  Vector<T> y(static_cast<Index>(W.size()));
  for (size_t j = 0; j < W.size(); ++j) {
    const Vector<double> w = Decoded(W[j]);
    T product = 0;
    for (Index i = 0; i < x.size(); ++i) product += w[i] * x[i];
    y[static_cast<Index>(j)] = product + (double{QuantizedDot(W[j], activations)} - w.dot(constant));
  }
  return y;
}

}  // namespace qkv::formal

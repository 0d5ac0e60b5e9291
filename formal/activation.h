#pragma once

// The activation functions of the multi-layer perceptrons.

#include <cmath>
#include <numbers>

#include "formal/notation.h"

namespace qkv::formal {

// ReLU(x) = max(0, x); its derivative at 0 is taken to be 0.
template <typename T>
T ReLU(const T& x) {
  return value(x) > 0 ? x : T(0);
}

// GELU(x) = x P[X < x] for X ~ N(0, 1), eq. (5): x (1 + erf(x / sqrt 2)) / 2.
template <typename T>
T GELU(const T& x) {
  using std::erf;
  return 0.5 * x * (1.0 + erf(x / std::numbers::sqrt2));
}

// The approximation of GELU that GPT-2 computes in place of eq. (5):
// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. Compare `gelu_new` in GPT-2's configuration.
template <typename T>
T GELU_tanh(const T& x) {
  using std::tanh;
  return 0.5 * x * (1.0 + tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

enum class Activation { as_printed, ReLU, GELU, GELU_tanh };

// The activation, element by element: X [m x n] -> [m x n]. `printed` is what as_printed means in the
// algorithm at hand: ReLU in Algorithm 8, GELU in 9 and 10.
template <typename T>
Matrix<T> activate(Activation activation, Activation printed, const Matrix<T>& X) {
  switch (activation == Activation::as_printed ? printed : activation) {
    case Activation::ReLU:
      return X.unaryExpr([](const T& x) { return ReLU(x); });
    case Activation::GELU:
      return X.unaryExpr([](const T& x) { return GELU(x); });
    case Activation::GELU_tanh:
      return X.unaryExpr([](const T& x) { return GELU_tanh(x); });
    case Activation::as_printed:
      break;
  }
  assert(!"activate: `printed` must name a function");
  return X;
}

}  // namespace qkv::formal

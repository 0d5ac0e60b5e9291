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

// The gate of GLU (Dauphin et al. 2017).
template <typename T>
T sigmoid(const T& x) {
  using std::exp;
  return 1.0 / (1.0 + exp(-x));
}

// xIELU (Huang & Schlag 2025, eq. 6) with beta = 1/2; softplus(a) = ln(1 + e^a).
template <typename T>
T xIELU(const T& x, const T& alpha_p, const T& alpha_n) {
  using std::exp;
  using std::log;
  constexpr double beta = 0.5;
  const T a_p = log(1.0 + exp(alpha_p)), a_n = beta + log(1.0 + exp(alpha_n));
  return value(x) > 0 ? T(a_p * x * x + beta * x) : T(a_n * (exp(x) - 1.0 - x) + beta * x);
}

// Those up to GELU_tanh are the algorithms' and GPT-2's. identity is the gate of a bilinear layer (Shazeer
// 2020); GELU_sigmoid, x sigmoid(1.702 x), the gate of gpt-oss.
enum class Activation { as_printed, ReLU, GELU, GELU_tanh, sigmoid, identity, GELU_sigmoid };

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
    case Activation::sigmoid:
      return X.unaryExpr([](const T& x) { return sigmoid(x); });
    case Activation::identity:
      return X;
    case Activation::GELU_sigmoid:
      return X.unaryExpr([](const T& x) { return T(x * sigmoid<T>(1.702 * x)); });
    case Activation::as_printed:
      break;
  }
  assert(!"activate: `printed` must name a function");
  return X;
}

}  // namespace qkv::formal

#pragma once

// Layer normalisation: Algorithm 6, and RMSnorm.

#include <cmath>

#include "formal/notation.h"

namespace qkv::formal {

// (z / sqrt(v + epsilon)) .* gamma + beta; an empty gamma is 1, an empty beta is 0.
template <typename T>
Vector<T> scale_and_offset(const Vector<T>& z, const T& v, const Vector<T>& gamma, const Vector<T>& beta,
                           double epsilon) {
  using std::sqrt;
  Vector<T> e_hat = z / T(sqrt(v + epsilon));
  if (gamma.size() != 0) e_hat = e_hat.cwiseProduct(gamma).eval();
  if (beta.size() != 0) e_hat += beta;
  return e_hat;
}

// Algorithm 6, e^ <- layer_norm(e | gamma, beta): e, gamma, beta [d_e] -> [d_e].
//
// The paper divides by sqrt(v), which is 0/0 for a vector of equal entries; every real model adds an epsilon
// to the variance, under the root. epsilon = 0 is the algorithm as printed.
template <typename T>
Vector<T> layer_norm(const Vector<T>& e, const Vector<T>& gamma, const Vector<T>& beta, double epsilon = 0) {
  const double d_e = static_cast<double>(e.size());
  T m = 0;  // line 1
  for (Index i = 0; i < e.size(); ++i) m += e(i) / d_e;
  T v = 0;  // line 2: the variance over d_e, not over d_e - 1
  for (Index i = 0; i < e.size(); ++i) v += (e(i) - m) * (e(i) - m) / d_e;
  const Vector<T> centred = (e.array() - m).matrix();
  return scale_and_offset<T>(centred, v, gamma, beta, epsilon);  // line 3
}

// RMSnorm, "m = beta = 0" in Algorithm 6: e, gamma [d_e] -> e / sqrt(sum_i e[i]^2 / d_e + epsilon) .* gamma.
template <typename T>
Vector<T> RMSnorm(const Vector<T>& e, const Vector<T>& gamma, double epsilon = 0) {
  const double d_e = static_cast<double>(e.size());
  T v = 0;
  for (Index i = 0; i < e.size(); ++i) v += e(i) * e(i) / d_e;
  return scale_and_offset<T>(e, v, gamma, Vector<T>(), epsilon);
}

}  // namespace qkv::formal

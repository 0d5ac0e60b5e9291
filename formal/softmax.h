#pragma once

// softmax, eq. (2).

#include <cmath>

#include "formal/notation.h"

namespace qkv::formal {

// softmax(A)[t_z, t_x] = exp A[t_z, t_x] / sum_t exp A[t, t_x], eq. (2): A [l_z x l_x] -> [l_z x l_x], every
// column a distribution.
//
// Each column's largest entry is first subtracted from the column. That changes neither value nor gradient
// (numerator and denominator are both divided by exp of it), but exp does not overflow. A column of nothing
// but minus infinity gives 0/0 = NaN, with the subtraction and as printed.
template <typename T>
Matrix<T> softmax(const Matrix<T>& A) {
  using std::exp;
  Matrix<T> P(A.rows(), A.cols());
  for (Index t_x = 1; t_x <= A.cols(); ++t_x) {
    double largest = value(entry(A, 1, t_x));
    for (Index t_z = 2; t_z <= A.rows(); ++t_z) largest = std::fmax(largest, value(entry(A, t_z, t_x)));
    T sum = 0;
    for (Index t_z = 1; t_z <= A.rows(); ++t_z) {
      entry(P, t_z, t_x) = exp(entry(A, t_z, t_x) - largest);
      sum += entry(P, t_z, t_x);
    }
    for (Index t_z = 1; t_z <= A.rows(); ++t_z) entry(P, t_z, t_x) = entry(P, t_z, t_x) / sum;
  }
  return P;
}

}  // namespace qkv::formal

#pragma once

// RWKV: recurrences that are trained in parallel and read a token beside the one before it.

#include <cmath>

#include "formal/recurrence.h"

namespace qkv::formal {

// The column before each: x[t - 1], with x[0] = 0.
template <typename T>
Matrix<T> shifted(const Matrix<T>& X) {
  Matrix<T> Y = Matrix<T>::Constant(X.rows(), X.cols(), T(0));
  if (X.cols() > 1) Y.rightCols(X.cols() - 1) = X.leftCols(X.cols() - 1);
  return Y;
}

// a + mu .* (b - a) in every column (Peng et al. 2023, eq. 11 to 13). mu [d].
template <typename T>
Matrix<T> lerp(const Matrix<T>& A, const Matrix<T>& B, const Vector<T>& mu) {
  return A + Matrix<T>(mu.asDiagonal() * Matrix<T>(B - A));
}

// y[t] = (sum_(s < t) e^((t - 1 - s) w + k[s]) v[s] + e^(u + k[t]) v[t]) / (the same without v), entry by
// entry (Peng et al. 2023, eq. 16). K, V [d x l], w, u [d] -> [d x l].
template <typename T>
Matrix<T> wkv(const Matrix<T>& K, const Matrix<T>& V, const Vector<T>& w, const Vector<T>& u) {
  Matrix<T> Y = V;
  for (Index t = 1; t <= K.cols(); ++t)
    for (Index c = 1; c <= K.rows(); ++c) {
      using std::exp;
      const T own = exp(T(u[c - 1] + entry(K, c, t)));
      T above = own * entry(V, c, t), below = own;
      for (Index s = 1; s < t; ++s) {
        const T weight = exp(T(w[c - 1] * static_cast<double>(t - 1 - s) + entry(K, c, s)));
        above += weight * entry(V, c, s);
        below += weight;
      }
      entry(Y, c, t) = above / below;
    }
  return Y;
}

// S[t] = S[t-1] diag(w[t]) - (S[t-1] d[t]) (a[t] .* d[t])^T + v[t] k[t]^T, y[t] = S[t] r[t], from S[0] = 0
// (Peng et al. 2025, eq. 16). The value under the key d fades by the rate a. R, W, K, D, A [d_k x l], V
// [d_v x l] -> [d_v x l].
template <typename T>
Matrix<T> RWKV_7(const Matrix<T>& R, const Matrix<T>& W, const Matrix<T>& K, const Matrix<T>& V,
                 const Matrix<T>& D, const Matrix<T>& A) {
  Matrix<T> S = Matrix<T>::Constant(V.rows(), K.rows(), T(0)), Y = V;
  for (Index t = 1; t <= R.cols(); ++t) {
    const Vector<T> d = column(D, t), stored = S * d, taken = Vector<T>(column(A, t)).cwiseProduct(d);
    S = Matrix<T>(S * Vector<T>(column(W, t)).asDiagonal()) - stored * taken.transpose() +
        Vector<T>(column(V, t)) * Vector<T>(column(K, t)).transpose();
    column(Y, t) = S * Vector<T>(column(R, t));
  }
  return Y;
}

}  // namespace qkv::formal

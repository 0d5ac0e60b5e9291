#pragma once

// State-space models, and the short convolutions that stand before them.

#include <cmath>

#include "formal/fast_weights.h"
#include "formal/recurrence.h"

namespace qkv::formal {

// x sigma(x) (Elfwing et al. 2017).
template <typename T>
Matrix<T> SiLU(const Matrix<T>& X) {
  return X.unaryExpr([](const T& x) { return T(x * sigma(x)); });
}

// ln(1 + e^x).
template <typename T>
T softplus(const T& x) {
  using std::exp, std::log;
  return log(1.0 + exp(x));
}

// y[t] = b + sum_j w[j] .* x[t - K + j], j in [K], with x[t] = 0 for t < 1. X [d x l], W [d x K], b [d],
// which may be empty -> [d x l].
template <typename T>
Matrix<T> short_convolution(const Matrix<T>& X, const Matrix<T>& W, const Vector<T>& b) {
  Matrix<T> Y = Matrix<T>::Constant(X.rows(), X.cols(), T(0));
  for (Index t = 1; t <= X.cols(); ++t) {
    if (b.size() > 0) column(Y, t) = b;
    for (Index j = 1; j <= W.cols(); ++j)
      if (const Index from = t - W.cols() + j; from >= 1)
        column(Y, t) += Vector<T>(column(W, j)).cwiseProduct(Vector<T>(column(X, from)));
  }
  return Y;
}

// h_c[t] = exp(step_c[t] A_c) .* h_c[t-1] + step_c[t] x_c[t] B[t], y_c[t] = h_c[t] . C[t] + D_c x_c[t] for
// each channel c, from h[0] = 0 (Gu & Dao 2023, Algorithm 2). X, steps [d x l], A [d x n], B, C [n x l], D
// [d]
// -> [d x l].
template <typename T>
Matrix<T> selective_scan(const Matrix<T>& X, const Matrix<T>& steps, const Matrix<T>& A, const Matrix<T>& B,
                         const Matrix<T>& C, const Vector<T>& D) {
  Matrix<T> h = Matrix<T>::Constant(A.rows(), A.cols(), T(0)), Y = X;
  for (Index t = 1; t <= X.cols(); ++t)
    for (Index c = 1; c <= X.rows(); ++c) {
      T y = D[c - 1] * entry(X, c, t);
      for (Index i = 1; i <= A.cols(); ++i) {
        using std::exp;
        const T step = entry(steps, c, t);
        entry(h, c, i) =
            exp(T(step * entry(A, c, i))) * entry(h, c, i) + step * entry(X, c, t) * entry(B, i, t);
        y += entry(h, c, i) * entry(C, i, t);
      }
      entry(Y, c, t) = y;
    }
  return Y;
}

// One head of Mamba-2, whose channels have one decay: H[t] = exp(step[t] A) H[t-1] + step[t] x[t] B[t]^T,
// y[t] = H[t] C[t] + D x[t], from H[0] = 0 (Dao & Gu 2024, section 7). X [d x l], steps [l], A and D numbers,
// B, C [n x l] -> [d x l].
template <typename T>
Matrix<T> state_space_dual(const Matrix<T>& X, const Vector<T>& steps, const T& A, const Matrix<T>& B,
                           const Matrix<T>& C, const T& D) {
  Matrix<T> H = Matrix<T>::Constant(X.rows(), B.rows(), T(0)), Y = X;
  for (Index t = 1; t <= X.cols(); ++t) {
    using std::exp;
    const T& step = steps[t - 1];
    const T keep = exp(T(step * A));
    H = H * keep + Vector<T>(column(X, t)) * Vector<T>(column(B, t)).transpose() * step;
    column(Y, t) = H * Vector<T>(column(C, t));
    column(Y, t) += Vector<T>(column(X, t)) * D;
  }
  return Y;
}

// W' = exp(g[t]) W_(t-1), W_t = W' + beta[t] (v[t] - W' k[t]) k[t]^T, y[t] = W_t q[t] (Yang et al. 2024, eq.
// 10). The delta rule of a memory that fades. beta, g [l].
template <typename T>
Matrix<T> gated_delta_rule(const Matrix<T>& Q, const Matrix<T>& K, const Matrix<T>& V, const Vector<T>& beta,
                           const Vector<T>& g) {
  Matrix<T> W = Matrix<T>::Constant(V.rows(), K.rows(), T(0)), Y = V;
  for (Index t = 1; t <= Q.cols(); ++t) {
    using std::exp;
    const Vector<T> k = column(K, t), v = column(V, t);
    W = W * T(exp(g[t - 1]));
    const Vector<T> stored = W * k;
    W += beta[t - 1] * (v - stored) * k.transpose();
    column(Y, t) = W * Vector<T>(column(Q, t));
  }
  return Y;
}

}  // namespace qkv::formal

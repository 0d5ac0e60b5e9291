#pragma once

// Linear attention, and the fast weights that it is another view of.

#include <cmath>

#include "formal/notation.h"

namespace qkv::formal {

// Maps phi of queries and keys, whose products phi(k) . phi(q) are the similarities of linear attention.
enum class FeatureMap { identity, elu, ReLU, shares, unit, near_unit };

// phi(x): x; elu(x) + 1 (Katharopoulos et al. 2020, eq. 7); max(0, x); elu(x) + 1 divided by its sum (Schlag
// et al. 2021, section 4.2); x of length 1 (Yang et al. 2024); x of nearly that (Peng et al. 2021).
template <typename T>
Vector<T> phi(FeatureMap kind, const Vector<T>& x) {
  using std::exp, std::sqrt;
  if (kind == FeatureMap::identity) return x;
  if (kind == FeatureMap::unit || kind == FeatureMap::near_unit) {
    T squares = kind == FeatureMap::unit ? 1e-6 : 0;
    for (Index i = 0; i < x.size(); ++i) squares += x[i] * x[i];
    return x / (kind == FeatureMap::unit ? T(sqrt(squares)) : T(sqrt(squares) + 1e-3));
  }
  Vector<T> y = x;
  T sum = 0;
  for (Index i = 0; i < x.size(); ++i) {
    const bool positive = value(x[i]) > 0;
    if (kind == FeatureMap::ReLU)
      y[i] = positive ? x[i] : T(0);
    else
      y[i] = positive ? T(x[i] + 1.0) : T(exp(x[i]));
    sum += y[i];
  }
  if (kind == FeatureMap::shares) y = y / sum;
  return y;
}

// phi of every column.
template <typename T>
Matrix<T> phi(FeatureMap kind, const Matrix<T>& X) {
  Matrix<T> Y = X;
  for (Index t = 1; t <= X.cols(); ++t) column(Y, t) = phi(kind, Vector<T>(column(X, t)));
  return Y;
}

// y[t] = sum_s (k[s] . q[t]) v[s], s <= t if `causal`; normalised: divided by sum_s k[s] . q[t] + 1e-6
// (Katharopoulos et al. 2020, eq. 4 and 8). Q, K [d_k x l], V [d_v x l], the features of queries and keys ->
// [d_v x l].
template <typename T>
Matrix<T> linear_attention(const Matrix<T>& Q, const Matrix<T>& K, const Matrix<T>& V, bool causal,
                           bool normalised) {
  Matrix<T> Y = Matrix<T>::Constant(V.rows(), Q.cols(), T(0));
  for (Index t = 1; t <= Q.cols(); ++t) {
    T sum = 1e-6;
    for (Index s = 1; s <= (causal ? t : K.cols()); ++s) {
      const T similarity = Vector<T>(column(K, s)).dot(Vector<T>(column(Q, t)));
      column(Y, t) += similarity * Vector<T>(column(V, s));
      sum += similarity;
    }
    if (normalised) column(Y, t) = Vector<T>(column(Y, t)) / sum;
  }
  return Y;
}

// The fast weights W of a net that a slow net programs by keys and values (Schmidhuber 1992):
// W_t = W_(t-1) + v[t] k[t]^T, y[t] = W_t q[t], from W_0 = 0. The same as causal linear attention that is not
// normalised.
template <typename T>
Matrix<T> fast_weights(const Matrix<T>& Q, const Matrix<T>& K, const Matrix<T>& V) {
  Matrix<T> W = Matrix<T>::Constant(V.rows(), K.rows(), T(0)), Y = V;
  for (Index t = 1; t <= Q.cols(); ++t) {
    W += Vector<T>(column(V, t)) * Vector<T>(column(K, t)).transpose();
    column(Y, t) = W * Vector<T>(column(Q, t));
  }
  return Y;
}

// The delta rule: W_t = W_(t-1) + beta[t] (v[t] - W_(t-1) k[t]) k[t]^T, y[t] = W_t q[t] (Schlag et al. 2021,
// eq. 22-25). It replaces the value that is stored under k[t]. beta [l].
template <typename T>
Matrix<T> delta_rule(const Matrix<T>& Q, const Matrix<T>& K, const Matrix<T>& V, const Vector<T>& beta) {
  Matrix<T> W = Matrix<T>::Constant(V.rows(), K.rows(), T(0)), Y = V;
  for (Index t = 1; t <= Q.cols(); ++t) {
    const Vector<T> k = column(K, t), v = column(V, t), stored = W * k;
    W += beta[t - 1] * (v - stored) * k.transpose();
    column(Y, t) = W * Vector<T>(column(Q, t));
  }
  return Y;
}

}  // namespace qkv::formal

#pragma once

// Attention by random features (Peng et al. 2021, RFA; Choromanski et al. 2021, Performer).

#include <algorithm>
#include <cmath>

#include "formal/fast_weights.h"
#include "formal/notation.h"

namespace qkv::formal {

// The two maps. With w_1, ..., w_D drawn from N(0, I), phi(x) . phi(y) is e^(x . y) on average.
enum class RandomMap { Fourier, positive };

// D^(-1/2) [cos w_j . x, sin w_j . x], without the factor e^(|x|^2 / 2) (Rahimi & Recht 2007); or
// D^(-1/2) e^(w_j . x), without e^(-|x|^2 / 2) (Choromanski et al. 2021, lemma 1). W [D x d], x [d].
template <typename T>
Vector<T> random_map(RandomMap map, const Matrix<double>& W, const Vector<T>& x) {
  const Index D = W.rows();
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  Vector<T> y = Vector<T>::Constant(map == RandomMap::Fourier ? 2 * D : D, T(0));
  for (Index j = 0; j < D; ++j) {
    using std::cos, std::exp, std::sin;
    T u = 0;
    for (Index i = 0; i < x.size(); ++i) u += W(j, i) * x[i];
    y[j] = scale * (map == RandomMap::Fourier ? T(cos(u)) : T(exp(u)));
    if (map == RandomMap::Fourier) y[D + j] = scale * T(sin(u));
  }
  return y;
}

// ln of the factor that random_map() leaves out.
template <typename T>
T log_factor(RandomMap map, const Vector<T>& x) {
  T half = 0;
  for (Index i = 0; i < x.size(); ++i) half += x[i] * x[i] * 0.5;
  return map == RandomMap::Fourier ? half : T(-half);
}

// y[t] = sum_s c[s, t] v[s] / sum_s c[s, t], c[s, t] = e^(a[s] + G[s, t]) phi(k[s]) . phi(q[t]), where a is
// log_factor() and, with gates g, G = ln (1 - g[s]) + sum_(s < r <= t) ln g[r]; s <= t if `causal`. The sums
// are taken as parts of the largest of all e^(a[s] + G[s, t]); a divisor of a smaller magnitude than 1e-6
// keeps its sign and becomes that. Q, K [d x l], V [d_v x l], g [l] or empty -> [d_v x l].
template <typename T>
Matrix<T> random_feature_attention(RandomMap map, const Matrix<double>& W, const Matrix<T>& Q,
                                   const Matrix<T>& K, const Matrix<T>& V, const Vector<T>& g, bool causal) {
  Matrix<T> Y = Matrix<T>::Constant(V.rows(), Q.cols(), T(0));
  for (Index t = 1; t <= Q.cols(); ++t) {
    const Index last = causal ? t : K.cols();
    const Vector<T> q = column(Q, t), phi_q = random_map(map, W, q);
    // The largest feature of a query is a factor of both sums.
    double of_q = -1e300;
    for (Index j = 0; j < phi_q.size(); ++j) of_q = std::max(of_q, value(phi_q[j]));
    const double by_q = map == RandomMap::Fourier ? 1 : of_q * std::sqrt(static_cast<double>(W.rows()));
    const auto log_weight = [&](Index s) {
      using std::log;
      const Vector<T> k = column(K, s);
      T sum = log_factor(map, k);
      if (g.size() == 0) return sum;
      sum += log(T(1.0 - g[s - 1]));
      for (Index r = s + 1; r <= last; ++r) sum += log(g[r - 1]);
      return sum;
    };
    // The largest feature of a key is a part of its size, if the map is positive.
    double most = -1e300;
    for (Index s = 1; s <= last; ++s) {
      const Vector<T> k = column(K, s), phi_k = random_map(map, W, k);
      double largest = -1e300;
      for (Index j = 0; j < phi_k.size(); ++j) largest = std::max(largest, value(phi_k[j]));
      const double size =
          map == RandomMap::Fourier ? 0 : std::log(largest * std::sqrt(static_cast<double>(W.rows())));
      most = std::max(most, value(log_weight(s)) + size);
    }
    T below = 0;
    Vector<T> above = Vector<T>::Constant(V.rows(), T(0));
    for (Index s = 1; s <= last; ++s) {
      using std::exp;
      const Vector<T> k = column(K, s), phi_k = random_map(map, W, k);
      const T c = exp(T(log_weight(s) - most)) * phi_k.dot(phi_q) / by_q;
      above += c * Vector<T>(column(V, s));
      below += c;
    }
    if (std::abs(value(below)) < 1e-6) below = T(value(below) < 0 ? -1e-6 : 1e-6);
    column(Y, t) = above / below;
  }
  return Y;
}

// y[t] = sum_s c[s, t] v[s] / max(sum_s c[s, t], 1), c[s, t] = phi(k[s]) . phi(q[t]), s <= t, if `causal`;
// else all s, and the divisor's magnitude counts. phi(x) = 0.1 [cos w_j . u, sin w_j . u] with
// u = sigma .* x / (|x| + 0.001), as Peng et al. (2021) published it. W [D x d], sigma [d], Q, K [d x l],
// V [d_v x l] -> [d_v x l].
template <typename T>
Matrix<T> unit_random_feature_attention(const Matrix<double>& W, const Vector<T>& sigma, const Matrix<T>& Q,
                                        const Matrix<T>& K, const Matrix<T>& V, bool causal) {
  const double factor = 0.1 * std::sqrt(static_cast<double>(W.rows()));
  const auto of = [&](const Matrix<T>& X, Index t) {
    const Vector<T> u = sigma.cwiseProduct(phi(FeatureMap::near_unit, Vector<T>(column(X, t))));
    return Vector<T>(random_map(RandomMap::Fourier, W, u) * T(factor));
  };
  Matrix<T> Y = Matrix<T>::Constant(V.rows(), Q.cols(), T(0));
  for (Index t = 1; t <= Q.cols(); ++t) {
    T below = 0;
    Vector<T> above = Vector<T>::Constant(V.rows(), T(0));
    for (Index s = 1; s <= (causal ? t : K.cols()); ++s) {
      const T c = of(K, s).dot(of(Q, t));
      above += c * Vector<T>(column(V, s));
      below += c;
    }
    if (!causal && value(below) < 0) below = -below;
    if (value(below) < 1) below = 1;
    column(Y, t) = above / below;
  }
  return Y;
}

// y[t] = sum_s (phi(k[s]) . phi(q[t])) v[s] / sum_s phi(k[s]) . phi(q[t]), with positive features to which
// epsilon is added: D^(-1/2) (e^(w_j . x - |x|^2 / 2 - M) + epsilon). M is the largest w_j . q of the query,
// and the largest w_j . k of all keys (Performer's published code). W [D x d], Q, K [d x l], V [d_v x l] ->
// [d_v x l].
template <typename T>
Matrix<T> raised_feature_attention(const Matrix<double>& W, double epsilon, const Matrix<T>& Q,
                                   const Matrix<T>& K, const Matrix<T>& V) {
  const auto exponents = [&](const Matrix<T>& X, Index t) {
    const Vector<T> x = column(X, t);
    Vector<T> u = Vector<T>::Constant(W.rows(), T(0));
    for (Index j = 0; j < W.rows(); ++j)
      for (Index i = 0; i < x.size(); ++i) u[j] += W(j, i) * x[i];
    return u;
  };
  const auto largest = [&](const Matrix<T>& X, Index t) {
    double most = -1e300;
    const Vector<T> u = exponents(X, t);
    for (Index j = 0; j < u.size(); ++j) most = std::max(most, value(u[j]));
    return most;
  };
  const auto features = [&](const Matrix<T>& X, Index t, double M) {
    using std::exp;
    Vector<T> y = exponents(X, t);
    const T less = M - log_factor(RandomMap::positive, Vector<T>(column(X, t)));
    for (Index j = 0; j < y.size(); ++j)
      y[j] = (exp(T(y[j] - less)) + epsilon) / std::sqrt(static_cast<double>(W.rows()));
    return y;
  };
  double of_keys = -1e300;
  for (Index s = 1; s <= K.cols(); ++s) of_keys = std::max(of_keys, largest(K, s));
  Matrix<T> Y = Matrix<T>::Constant(V.rows(), Q.cols(), T(0));
  for (Index t = 1; t <= Q.cols(); ++t) {
    const Vector<T> phi_q = features(Q, t, largest(Q, t));
    T below = 0;
    for (Index s = 1; s <= K.cols(); ++s) {
      const T c = features(K, s, of_keys).dot(phi_q);
      column(Y, t) += c * Vector<T>(column(V, s));
      below += c;
    }
    column(Y, t) = Vector<T>(column(Y, t)) / below;
  }
  return Y;
}

}  // namespace qkv::formal

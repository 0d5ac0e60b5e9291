#pragma once

// Attention by random features (Peng et al. 2021, RFA; Choromanski et al. 2021, Performer).

#include <algorithm>
#include <cmath>

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

}  // namespace qkv::formal

#pragma once

// The attention-free transformer (Zhai et al. 2021).

#include <algorithm>
#include <cmath>

#include "formal/notation.h"

namespace qkv::formal {

// The forms of its weights w[t, s]: of each pair of positions; the same, but 0 for |t - s| >= the window;
// none; of each head and distance below the window.
enum class AFT { full, local, simple, conv };

// w[t, s] of the d-th of `rows` rows. W: full and local [positions x positions]; conv [heads x distances],
// the distances being t - s from 0 where `causal`, else from -(window - 1).
template <typename T>
T position_weight(AFT form, const Matrix<T>& W, Index window, Index d, Index rows, Index t, Index s,
                  bool causal) {
  if (form == AFT::simple || (form != AFT::full && std::abs(t - s) >= window)) return T(0);
  if (form != AFT::conv) return entry(W, t, s);
  return W((d - 1) / (rows / W.rows()), t - s + (causal ? 0 : window - 1));
}

// Y[d, t] = sum_s e^(K[d, s] + w[t, s]) V[d, s] / sum_s e^(K[d, s] + w[t, s]), s <= t where `causal`
// (equation 2, without the gate). K, V [d x l] -> [d x l].
template <typename T>
Matrix<T> attention_free(AFT form, const Matrix<T>& W, Index window, const Matrix<T>& K, const Matrix<T>& V,
                         bool causal) {
  Matrix<T> Y = V;
  for (Index d = 1; d <= K.rows(); ++d)
    for (Index t = 1; t <= K.cols(); ++t) {
      using std::exp;
      const auto exponent = [&](Index s) {
        return T(entry(K, d, s) + position_weight(form, W, window, d, K.rows(), t, s, causal));
      };
      const Index last = causal ? t : K.cols();
      double most = value(exponent(1));
      for (Index s = 2; s <= last; ++s) most = std::max(most, value(exponent(s)));
      T above = 0, below = 0;
      for (Index s = 1; s <= last; ++s) {
        const T weight = exp(T(exponent(s) - most));
        above += weight * entry(V, d, s);
        below += weight;
      }
      entry(Y, d, t) = above / below;
    }
  return Y;
}

}  // namespace qkv::formal

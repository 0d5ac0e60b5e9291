#pragma once

// Token and positional embeddings: Algorithms 1 and 2, and the hard-coded positions of section 5.

#include <cmath>

#include "formal/notation.h"

namespace qkv::formal {

// Algorithm 1, token embedding: v in [N_V], W_e [d_e x N_V] -> e = W_e[:, v], [d_e].
template <typename T>
Vector<T> token_embedding(int v, const Matrix<T>& W_e) {
  assert(1 <= v && v <= W_e.cols());
  return column(W_e, v);
}

// Algorithm 2, (learned) positional embedding: t in [l_max], W_p [d_e x l_max] -> e_p = W_p[:, t], [d_e].
template <typename T>
Vector<T> positional_embedding(Index t, const Matrix<T>& W_p) {
  assert(1 <= t && t <= W_p.cols());
  return column(W_p, t);
}

// The hard-coded W_p[:, t], [d_e], of section 5: for 0 < i <= d_e / 2,
//     W_p[2i-1, t] = sin(t / l_max^(2i/d_e)),    W_p[2i, t] = cos(t / l_max^(2i/d_e)).
// It is defined for every t, so also beyond l_max. REQUIRES: d_e even (the formula leaves no value for an odd
// last row). As printed, t and i count from 1 and the base is l_max; the original Transformer has both from 0
// and the base 10000.
template <typename T>
Vector<T> hard_coded_positional_embedding(Index t, Index d_e, Index l_max) {
  assert(t >= 1 && d_e % 2 == 0);
  Vector<T> e_p(d_e);
  for (Index i = 1; i <= d_e / 2; ++i) {
    const double angle =
        static_cast<double>(t) /
        std::pow(static_cast<double>(l_max), static_cast<double>(2 * i) / static_cast<double>(d_e));
    entry(e_p, 2 * i - 1, 1) = T(std::sin(angle));
    entry(e_p, 2 * i, 1) = T(std::cos(angle));
  }
  return e_p;
}

}  // namespace qkv::formal

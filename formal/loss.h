#pragma once

// The log losses of Algorithms 11, 12 and 13, of one sequence (pair). Sums over positions, as printed, not
// means.

#include <cmath>
#include <vector>

#include "formal/notation.h"
#include "formal/special_tokens.h"
#include "formal/theta.h"
#include "formal/transformer.h"

namespace qkv::formal {

// -sum_{t=1}^{l-1} log P[x[t+1], t]: P [N_V x l], x of length l. 0 for l = 1: nothing is predicted.
template <typename T>
T next_token_loss(const Matrix<T>& P, const Tokens& x) {
  using std::log;
  T loss = 0;
  for (Index t = 1; t <= length(x) - 1; ++t) loss -= log(entry(P, at(x, t + 1), t));
  return loss;
}

// Algorithm 11, lines 3-5.
template <typename T>
T EDLoss(const Tokens& z, const Tokens& x, const EDTheta<T>& theta) {
  return next_token_loss(EDTransformer(z, x, theta), x);
}

// Algorithm 12, lines 4-6: x -> x~, in which every token is replaced by mask_token with probability p_mask.
// uniform() returns the next uniform number in [0, 1).
template <typename Uniform>
Tokens mask_randomly(const Tokens& x, Index N_V, double p_mask, Uniform&& uniform) {
  Tokens x_tilde = x;
  for (int& token : x_tilde) {
    if (uniform() < p_mask) token = mask_token(N_V);
  }
  return x_tilde;
}

// Algorithm 12, line 7: T~ = {t in [l] : x~[t] = mask_token}, in order. So a mask_token of x itself counts
// too.
inline std::vector<Index> masked_positions(const Tokens& x_tilde, Index N_V) {
  std::vector<Index> T_tilde;
  for (Index t = 1; t <= length(x_tilde); ++t) {
    if (at(x_tilde, t) == mask_token(N_V)) T_tilde.push_back(t);
  }
  return T_tilde;
}

// Algorithm 12, lines 8 and 9: -sum_{t in T~} log P[x[t], t], P from x~, the targets from the original x. 0
// where T~ is empty.
template <typename T>
T MaskedLoss(const Tokens& x, const Tokens& x_tilde, const std::vector<Index>& T_tilde,
             const ETheta<T>& theta) {
  using std::log;
  const Matrix<T> P = ETransformer(x_tilde, theta);
  T loss = 0;
  for (const Index t : T_tilde) loss -= log(entry(P, at(x, t), t));
  return loss;
}

// Algorithm 12, lines 7-9: what is predicted is what is masked.
template <typename T>
T ELoss(const Tokens& x, const Tokens& x_tilde, const ETheta<T>& theta) {
  return MaskedLoss(x, x_tilde, masked_positions(x_tilde, theta.hyper.N_V), theta);
}

// Algorithm 13, lines 3-5.
template <typename T>
T DLoss(const Tokens& x, const DTheta<T>& theta) {
  return next_token_loss(DTransformer(x, theta), x);
}

}  // namespace qkv::formal

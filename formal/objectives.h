#pragma once

// Losses that the paper leaves to others, in its notation: prefix language modelling, permutation language
// modelling, and heads of classes over Algorithm 9. Sums over positions, of one sequence.

#include <cmath>
#include <vector>

#include "formal/loss.h"
#include "formal/notation.h"
#include "formal/softmax.h"
#include "formal/theta.h"
#include "formal/transformer.h"

namespace qkv::formal {

// Prefix language modelling (Liu et al. 2018; Raffel et al. 2020): the first l_p tokens of x are given, and
// the rest predicted: -sum_{t=l_p}^{l-1} log P[x[t+1], t]. Sequence to sequence with Algorithm 10 is this of
// z and x in a row.
template <typename T>
T PrefixLoss(const Tokens& x, Index l_p, const DTheta<T>& theta) {
  using std::log;
  const Matrix<T> P = DTransformer(x, prefix_mask(l_p, length(x)), theta);
  T loss = 0;
  for (Index t = l_p; t <= length(x) - 1; ++t) loss -= log(entry(P, at(x, t + 1), t));
  return loss;
}

// Permutation language modelling (Yang et al. 2019, XLNet, section 2.2 and eqs. 3-5, with Algorithm 9's
// layers): the tokens of x at the positions z, predicted in z's order from the others and from those before
// them in z. H is the content stream, which knows its own token; G, the query stream, knows its position
// alone, and starts as mask_token. REQUIRES: a position that is not in z.
template <typename T>
T PermutationLoss(const Tokens& x, const std::vector<Index>& z, const ETheta<T>& theta) {
  using std::log;
  const Index l = length(x), n = static_cast<Index>(z.size());
  std::vector<Index> rank(static_cast<std::size_t>(l), 0);  // in z; 0: not in z, seen by all
  for (Index i = 1; i <= n; ++i) rank[static_cast<std::size_t>(z[static_cast<std::size_t>(i - 1)] - 1)] = i;
  MaskMatrix of_H(l, l), of_G(l, n);
  for (Index t_z = 1; t_z <= l; ++t_z) {
    const Index r = rank[static_cast<std::size_t>(t_z - 1)];
    for (Index t_x = 1; t_x <= l; ++t_x) entry(of_H, t_z, t_x) = r <= rank[static_cast<std::size_t>(t_x - 1)];
    for (Index i = 1; i <= n; ++i) entry(of_G, t_z, i) = r < i;
  }
  const Tokens masked(x.size(), mask_token(theta.hyper.N_V));
  const Matrix<T> masks = embed(masked, theta.embedding, theta.hyper);
  Matrix<T> H = embed(x, theta.embedding, theta.hyper), G(H.rows(), n);
  for (Index i = 1; i <= n; ++i) column(G, i) = column(masks, z[static_cast<std::size_t>(i - 1)]);
  for (const Layer<T>& layer : theta.layer) {
    G = ETransformer_layer(G, H, layer, of_G, theta.hyper);  // eq. (4), first line
    H = ETransformer_layer(H, H, layer, of_H, theta.hyper);  // second line
  }
  const Matrix<T> P = ETransformer_predict(G, theta);
  T loss = 0;
  for (Index i = 1; i <= n; ++i) loss -= log(entry(P, at(x, z[static_cast<std::size_t>(i - 1)]), i));
  return loss;
}

// theta of Algorithm 9 with a head of N_C classes (Devlin et al. 2019, sections 3.2 and 4): W_c [N_C x d_e],
// b_c [N_C], and BERT's pooler W_pool [d_e x d_e], b_pool [d_e].
template <typename T>
struct ClassTheta : ETheta<T> {
  Matrix<T> W_pool;
  Vector<T> b_pool;
  Matrix<T> W_c;
  Vector<T> b_c;

  explicit ClassTheta(const Hyperparameters& h)
      : ETheta<T>(h),
        W_pool(Matrix<T>::Constant(h.d_e, h.d_e, T(0))),
        b_pool(Vector<T>::Constant(h.d_e, T(0))),
        W_c(Matrix<T>::Constant(h.N_C, h.d_e, T(0))),
        b_c(Vector<T>::Constant(h.N_C, T(0))) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    ETheta<T>::visit(prefix, f, p...);
    visit_parameter(prefix + "W_pool", f, p.W_pool...);
    visit_parameter(prefix + "b_pool", f, p.b_pool...);
    visit_parameter(prefix + "W_c", f, p.W_c...);
    visit_parameter(prefix + "b_c", f, p.b_c...);
  }
};

// -log P[c] of a sequence's class c, read from its first token: P = softmax(W_c tanh(W_pool X[:, 1] + b_pool)
// + b_c).
template <typename T>
T ClassLoss(const Tokens& x, int c, const ClassTheta<T>& theta) {
  using std::log;
  using std::tanh;
  const Matrix<T> X = ETransformer_encode<T>(x, theta);
  const Matrix<T> first = column(X, 1);
  Matrix<T> pooled = affine(theta.W_pool, first, theta.b_pool);
  for (Index i = 1; i <= pooled.rows(); ++i) entry(pooled, i, 1) = tanh(entry(pooled, i, 1));
  const Matrix<T> scores = affine(theta.W_c, pooled, theta.b_c);
  const Matrix<T> P = softmax(scores);
  return -log(entry(P, c, 1));
}

// -sum_t log P[c[t], t] of each token's class: P = softmax(W_c X + b_c 1^T).
template <typename T>
T TagLoss(const Tokens& x, const Tokens& c, const ClassTheta<T>& theta) {
  using std::log;
  const Matrix<T> scores = affine(theta.W_c, ETransformer_encode<T>(x, theta), theta.b_c);
  const Matrix<T> P = softmax(scores);
  T loss = 0;
  for (Index t = 1; t <= length(x); ++t) loss -= log(entry(P, at(c, t), t));
  return loss;
}

// The answer stands in x[b:e]: -(log P_1[b] + log P_2[e]) / 2, where P_i = softmax over the positions of row
// i of W_c X + b_c 1^T, N_C = 2 (Devlin et al. 2019, section 4.2).
template <typename T>
T SpanLoss(const Tokens& x, Index b, Index e, const ClassTheta<T>& theta) {
  using std::log;
  const Matrix<T> scores = affine(theta.W_c, ETransformer_encode<T>(x, theta), theta.b_c);
  const Matrix<T> over_positions = scores.transpose();  // softmax goes down the columns
  const Matrix<T> P = softmax(over_positions);
  return -(log(entry(P, b, 1)) + log(entry(P, e, 2))) / T(2);
}

}  // namespace qkv::formal

#pragma once

// Attention: the masks of eq. (3), Algorithms 3, 4 and 5.

#include <cmath>
#include <limits>

#include "formal/attention_parameters.h"
#include "formal/notation.h"
#include "formal/softmax.h"

namespace qkv::formal {

// Mask in {0,1}^(l_z x l_x): Mask[t_z, t_x] says whether query t_x may attend to key t_z.
using MaskMatrix = Eigen::Matrix<bool, Eigen::Dynamic, Eigen::Dynamic>;

// Eq. (3), first case: Mask == 1, [l_z x l_x].
inline MaskMatrix bidirectional_mask(Index l_z, Index l_x) {
  return MaskMatrix::Constant(l_z, l_x, true);
}

// Eq. (3), second case: Mask[t_z, t_x] = [[t_z <= t_x]], [l_z x l_x].
inline MaskMatrix unidirectional_mask(Index l_z, Index l_x) {
  MaskMatrix Mask(l_z, l_x);
  for (Index t_z = 1; t_z <= l_z; ++t_z) {
    for (Index t_x = 1; t_x <= l_x; ++t_x) entry(Mask, t_z, t_x) = t_z <= t_x;
  }
  return Mask;
}

// The mask of a prefix language model (Liu et al. 2018; Raffel et al. 2020, fig. 4): Mask[t_z, t_x] = [[t_z
// <= t_x or t_z <= l_p]], the first l_p tokens being seen by all, [l x l].
inline MaskMatrix prefix_mask(Index l_p, Index l) {
  MaskMatrix Mask = unidirectional_mask(l, l);
  for (Index t_z = 1; t_z <= l_p; ++t_z) {
    for (Index t_x = 1; t_x <= l; ++t_x) entry(Mask, t_z, t_x) = true;
  }
  return Mask;
}

// The survey's permuted mask, P M_causal P^-1 (Yang et al. 2019, XLNet): Mask[t_z, t_x] = [[t_z is not after
// t_x in the order]], where order[i - 1] is the i-th position in that order, [l x l].
inline MaskMatrix permuted_mask(const std::vector<Index>& order) {
  const auto l = static_cast<Index>(order.size());
  MaskMatrix P = MaskMatrix::Constant(l, l, false);
  for (Index i = 1; i <= l; ++i) entry(P, order[static_cast<size_t>(i - 1)], i) = true;
  const Eigen::MatrixXi integers = P.cast<int>();  // its inverse is its transpose
  return (integers * unidirectional_mask(l, l).cast<int>() * integers.transpose()).cast<bool>();
}

// Algorithm 3, basic single-query attention: e [d_in], the current token; column t of E [d_in x T], the
// context token e_t -> v~ [d_out].
template <typename T>
Vector<T> single_query_attention(const Vector<T>& e, const Matrix<T>& E,
                                 const AttentionParameters<T>& W_qkv) {
  using std::exp;
  const Matrix<T> e_as_matrix = e;
  const double d_attn = static_cast<double>(W_qkv.W_q.rows());
  const Vector<T> q = affine(W_qkv.W_q, e_as_matrix, W_qkv.b_q);  // line 1
  const Matrix<T> k = affine(W_qkv.W_k, E, W_qkv.b_k);            // line 2: column t is k_t
  const Matrix<T> v = affine(W_qkv.W_v, E, W_qkv.b_v);            // line 3: column t is v_t
  Vector<T> alpha(E.cols());                                      // line 4
  T sum = 0;
  for (Index t = 1; t <= E.cols(); ++t) {
    entry(alpha, t, 1) = exp(q.dot(column(k, t)) / std::sqrt(d_attn));
    sum += entry(alpha, t, 1);
  }
  Vector<T> v_tilde = Vector<T>::Constant(v.rows(), T(0));  // line 5
  for (Index t = 1; t <= E.cols(); ++t) v_tilde += column(v, t) * T(entry(alpha, t, 1) / sum);
  return v_tilde;
}

// Algorithm 4 with three sequences, as the survey's attention head has them: queries of X_q [d_q x l_x], keys
// of X_k [d_k x l_z], values of X_v [d_v x l_z], Mask [l_z x l_x] -> V~ [d_out x l_x].
//
// A query whose Mask column is all 0 attends to nothing; as printed, the result is then 0/0 = NaN. We keep
// that here, so that a mask which allows it shows. Nowhere in the project is such a query computed: see
// docs/notation.md, "Padding".
template <typename T>
Matrix<T> Attention(const Matrix<T>& X_q, const Matrix<T>& X_k, const Matrix<T>& X_v,
                    const AttentionParameters<T>& W_qkv, const MaskMatrix& Mask) {
  const Index l_x = X_q.cols(), l_z = X_k.cols();
  assert(X_v.cols() == l_z && Mask.rows() == l_z && Mask.cols() == l_x);
  const double d_attn = static_cast<double>(W_qkv.W_q.rows());
  const Matrix<T> Q = affine(W_qkv.W_q, X_q, W_qkv.b_q);  // line 1: [d_attn x l_x]
  const Matrix<T> K = affine(W_qkv.W_k, X_k, W_qkv.b_k);  // line 2: [d_attn x l_z]
  const Matrix<T> V = affine(W_qkv.W_v, X_v, W_qkv.b_v);  // line 3: [d_out x l_z]
  Matrix<T> S = K.transpose() * Q;                        // line 4: [l_z x l_x]
  for (Index t_z = 1; t_z <= l_z; ++t_z) {                // line 5
    for (Index t_x = 1; t_x <= l_x; ++t_x) {
      if (!entry(Mask, t_z, t_x)) entry(S, t_z, t_x) = T(-std::numeric_limits<double>::infinity());
    }
  }
  const Matrix<T> scaled = S / T(std::sqrt(d_attn));
  return V * softmax(scaled);  // line 6
}

// Algorithm 4, V~ <- Attention(X, Z | W_qkv, Mask), one head: primary X [d_x x l_x], context Z [d_z x l_z],
// Mask [l_z x l_x] -> V~ [d_out x l_x].
template <typename T>
Matrix<T> Attention(const Matrix<T>& X, const Matrix<T>& Z, const AttentionParameters<T>& W_qkv,
                    const MaskMatrix& Mask) {
  return Attention(X, Z, Z, W_qkv, Mask);
}

// Algorithm 5 with three sequences, H heads of Attention(X_q, X_k, X_v | W^h_qkv, Mask) -> [d_out x l_x].
template <typename T>
Matrix<T> MHAttention(const Matrix<T>& X_q, const Matrix<T>& X_k, const Matrix<T>& X_v,
                      const MHAttentionParameters<T>& W, const MaskMatrix& Mask) {
  assert(!W.head.empty());
  const Index H = static_cast<Index>(W.head.size());
  const Index d_mid = W.head[0].W_v.rows();
  Matrix<T> Y(H * d_mid, X_q.cols());
  for (Index h = 1; h <= H; ++h) {  // line 1
    const AttentionParameters<T>& W_h = W.head[static_cast<std::size_t>(h - 1)];
    Y.middleRows((h - 1) * d_mid, d_mid) =
        Attention(X_q, X_k, X_v, W_h, Mask);  // lines 2, 3: Y = [Y^1; ...; Y^H]
  }
  return affine(W.W_o, Y, W.b_o);  // line 4
}

// Algorithm 5, V~ <- MHAttention(X, Z | W, Mask), H heads: X [d_x x l_x], Z [d_z x l_z], Mask [l_z x l_x] ->
// V~ [d_out x l_x].
template <typename T>
Matrix<T> MHAttention(const Matrix<T>& X, const Matrix<T>& Z, const MHAttentionParameters<T>& W,
                      const MaskMatrix& Mask) {
  return MHAttention(X, Z, Z, W, Mask);
}

// MHAttention(X | W, Mask), as Algorithms 8 to 10 call it with one sequence: self-attention, Z = X.
template <typename T>
Matrix<T> MHAttention(const Matrix<T>& X, const MHAttentionParameters<T>& W, const MaskMatrix& Mask) {
  return MHAttention(X, X, W, Mask);
}

}  // namespace qkv::formal

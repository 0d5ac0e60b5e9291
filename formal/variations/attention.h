#pragma once

// Algorithm 5 as it varies, and the masks of self-attention.

#include <cmath>
#include <limits>

#include "formal/attention.h"
#include "formal/fast_weights.h"
#include "formal/named.h"
#include "formal/recurrence.h"
#include "formal/softmax.h"
#include "formal/variations/normalization.h"
#include "formal/variations/positions.h"

namespace qkv::formal {

// cap tanh(x / cap) (Gemma 2).
template <typename T>
T capped(const T& x, double cap) {
  using std::tanh;
  return cap * tanh(x / cap);
}

// The epsilon of the norms of latents, and of queries that are keys.
constexpr double kLatentEpsilon = static_cast<double>(1e-6F);

// A token sees itself only where it sees no other.
inline void see_others(MaskMatrix& Mask) {
  for (Index t = 1; t <= Mask.cols(); ++t)
    for (Index t_z = 1; t_z <= Mask.rows(); ++t_z)
      if (t_z != t && entry(Mask, t_z, t)) entry(Mask, t, t) = false;
}

// Eq. (3), of which the pattern of layer l, from 0, is left, [n x n].
inline MaskMatrix varied_mask(Index n, std::size_t l, const VariedHyperparameters& h) {
  MaskMatrix Mask = h.bidirectional ? bidirectional_mask(n, n) : unidirectional_mask(n, n);
  const SparsePattern pattern = h.pattern(l);
  for (Index t_z = 1; t_z <= n; ++t_z)
    for (Index t_x = 1; t_x <= n; ++t_x)
      if (entry(Mask, t_z, t_x) && !pattern.sees(t_z, t_x, h.bidirectional ? n : 0))
        entry(Mask, t_z, t_x) = false;
  if (h.shares(l) && !h.hashing.hashes(n)) see_others(Mask);
  return Mask;
}

// RMSnorm of each column, as of latents: A [d x l] -> [d x l].
template <typename T>
Matrix<T> normed_latent(const Matrix<T>& A, const Vector<T>& gamma) {
  Matrix<T> C(A.rows(), A.cols());
  for (Index t = 1; t <= A.cols(); ++t)
    column(C, t) = RMSnorm(Vector<T>(column(A, t)), gamma, kLatentEpsilon);
  return C;
}

// The norm of queries, or of keys, M [heads d_attn x l].
template <typename T>
void normalize_heads(Matrix<T>& M, const Vector<T>& gamma, const Vector<T>& beta,
                     const VariedHyperparameters& h) {
  if (h.query_key_norm == QueryKeyNorm::none) return;
  const bool unit = h.query_key_norm == QueryKeyNorm::unit_rotated,
             whole = h.query_key_norm == QueryKeyNorm::whole,
             plus_one = h.query_key_norm == QueryKeyNorm::heads_plus_one,
             rms = whole || plus_one || h.query_key_norm == QueryKeyNorm::heads ||
                   h.query_key_norm == QueryKeyNorm::heads_rotated || unit;
  const Index d = whole ? M.rows() : h.d_attn;
  for (Index t = 1; t <= M.cols(); ++t)
    for (Index r = 0; r < M.rows(); r += d) {
      const Vector<T> e = column(M, t).segment(r, d);
      Vector<T> its_own = unit                ? Vector<T>(Vector<T>::Constant(d, T(1)))
                          : gamma.size() == d ? gamma
                                              : Vector<T>(gamma.segment(r, d));
      if (plus_one) its_own.array() += T(1);
      column(M, t).segment(r, d) =
          rms ? RMSnorm(e, its_own, h.epsilon) : layer_norm(e, its_own, beta, h.epsilon);
    }
}

// The keys and values of the heads that have some, as attention reads them: [d_attn x l_z], [d_mid x l_z].
template <typename T>
struct KeysAndValues {
  std::vector<Matrix<T>> k, v;
};

// A layer's place in its stack, and what its attention knows beside X and Z.
template <typename T>
struct AttentionPlace {
  std::size_t l = 0;                          // the layer, from 0
  MaskMatrix Mask;                            // [l_z x l_x]
  const DistanceTables<T>* tables = nullptr;  // none: Z's tokens are at no distance from X's
  Tokens s;                                   // the text of each token; empty: all are of one
  const KeysAndValues<T>* given = nullptr;    // those of an earlier layer; null: the layer has its own
  KeysAndValues<T>* left = nullptr;           // takes its own, for later layers
};

// The heads' outputs [H d_mid x l] of tokens that see all, by projections of their own (Beltagy et al. 2020,
// section 3.1).
template <typename T>
Matrix<T> global_heads(const Matrix<T>& X, const VariedAttention<T>& W, const VariedHyperparameters& h,
                       double scale) {
  const Index l = X.cols(), group = h.H / h.H_kv;
  Matrix<T> Y(h.H * h.d_mid, l);
  for (Index i = 0; i < h.H; ++i) {
    const AttentionParameters<T>&W_q = W.W_global.head[static_cast<std::size_t>(i)],
          &W_kv = W.W_global.head[static_cast<std::size_t>(i / group * group)];
    const Matrix<T> q = affine(W_q.W_q, X, W_q.b_q), k = affine(W_kv.W_k, X, W_kv.b_k),
                    S = k.transpose() * q * T(scale),
                    A = named("global.A^" + std::to_string(i + 1), softmax(S));
    Y.middleRows(i * h.d_mid, h.d_mid) = affine(W_kv.W_v, X, W_kv.b_v) * A;
  }
  return Y;
}

// Algorithm 5, V~ <- MHAttention(X, Z | W, Mask), with the variations: X [d_x x l_x], Z [d_z x l_z] -> [d_x x
// l_x]. REQUIRES: Z = X where scores know distances or keys are queries.
template <typename T>
Matrix<T> varied_attention(const Matrix<T>& X, const Matrix<T>& Z, const VariedAttention<T>& W,
                           const AttentionPlace<T>& place, const VariedHyperparameters& h) {
  const Index l_x = X.cols(), l_z = Z.cols(), group = h.H / h.H_kv;
  const SparsePattern pattern = h.pattern(place.l);
  const bool shared_query_key = h.shares(place.l);
  // Queries, keys and values are made of X and Z, or of latents of them.
  Matrix<T> X_q = X, Z_kv = Z, K_shared;
  if (h.d_query_latent > 0)
    X_q = named("query_latents", normed_latent(affine(W.W_cq, X, W.b_cq), W.gamma_cq));
  if (h.d_latent > 0) {
    const Matrix<T> C = affine(W.W_c, Z, W.b_c);
    Z_kv = named("latents", normed_latent<T>(C.topRows(h.d_latent), W.gamma_c));
    K_shared = C.bottomRows(h.d_rot);
  }
  const auto clipped = [&](const Matrix<T>& M) {
    return h.clip == 0 ? M : Matrix<T>(M.unaryExpr([&](const T& x) {
      return value(x) > h.clip ? T(h.clip) : value(x) < -h.clip ? T(-h.clip) : x;
    }));
  };
  Matrix<T> Q(h.first_row(h.H), l_x), K(h.first_row(h.H_kv), l_z);
  const bool own = place.given == nullptr;
  std::vector<Matrix<T>> V;
  for (Index i = 0; i < h.H; ++i) {
    const AttentionParameters<T>& W_i = W.W.head[static_cast<std::size_t>(i)];
    const Matrix<T> q = clipped(affine(W_i.W_q, X_q, W_i.b_q));
    Q.middleRows(h.first_row(i), h.size(i)) = q;
    if (shared_query_key)
      K.middleRows(h.first_row(i), h.size(i)) = normed_latent<T>(q, Vector<T>::Constant(h.size(i), T(1)));
    if (i % group != 0 || !own) continue;
    if (!shared_query_key) {
      const Matrix<T> k = clipped(affine(W_i.W_k, Z_kv, W_i.b_k));
      if (h.d_latent > 0) K.middleRows(h.first_row(i / group), h.d_rot) = K_shared;
      K.middleRows(h.first_row(i / group + 1) - k.rows(), k.rows()) = k;
      if (h.values_of_keys) V.push_back(k);
    }
    if (!h.values_of_keys) V.push_back(clipped(affine(W_i.W_v, Z_kv, W_i.b_v)));
    if (h.turned_values) V.back() = turned(V.back(), h);
    if (h.unit_values)
      for (Index t = 1; t <= l_z; ++t)
        column(V.back(), t) = RMSnorm(Vector<T>(column(V.back(), t)),
                                      Vector<T>(Vector<T>::Constant(V.back().rows(), T(1))), h.epsilon);
  }
  const bool after =
      h.query_key_norm == QueryKeyNorm::heads_rotated || h.query_key_norm == QueryKeyNorm::unit_rotated;
  if (!after) {
    normalize_heads(Q, W.gamma_q, W.beta_q, h);
    if (own) normalize_heads(K, W.gamma_k, W.beta_k, h);
  }
  KeysAndValues<T> made{{}, V};
  for (Index i = 0; i < h.H_kv && own; ++i) {
    Matrix<T> k = turned<T>(K.middleRows(h.first_row(i), h.size(i)), h);
    if (after) normalize_heads(k, W.gamma_k, W.beta_k, h);
    made.k.push_back(k);
  }
  if (place.left != nullptr) *place.left = made;
  for (std::size_t i = 0; i < made.k.size(); ++i) {
    named("K^" + std::to_string(i + 1), made.k[i]);
    named("V^" + std::to_string(i + 1), made.v[i]);
  }
  const KeysAndValues<T>& keys = own ? made : *place.given;
  const Index terms = h.relative == RelativeAttention::disentangled ? 1 + h.by_content + h.by_position : 1;
  const auto scale_of = [&](Index i) {
    const double scale =
        h.score_scale > 0 ? h.score_scale : 1 / std::sqrt(static_cast<double>(h.size(i) * terms));
    return h.scaled_by_layer ? scale / static_cast<double>(place.l + 1) : scale;
  };
  Matrix<T> Y(W.W.W_o.cols(), l_x);
  for (Index i = 0, row = 0; i < h.H; ++i) {
    const double scale = scale_of(i);
    const auto of_group = static_cast<std::size_t>(i / group);
    const Matrix<T>&k = keys.k[of_group], &v = keys.v[of_group];
    Matrix<T> q = turned<T>(Q.middleRows(h.first_row(i), h.size(i)), h);
    if (after) normalize_heads(q, W.gamma_q, W.beta_q, h);
    for (Index t = 1; t <= l_x && h.growth != 0; ++t)
      column(q, t) *=
          T(1 + h.growth * std::log1p(static_cast<double>((t - 1 + h.growth_from) / h.growth_every)));
    const std::string of_head = "^" + std::to_string(i + 1);
    named("Q" + of_head, q);
    if (h.linear) {
      Y.middleRows(row, v.rows()) =
          linear_attention(phi(FeatureMap::elu, q), phi(FeatureMap::elu, k), v, false, true);
      row += v.rows();
      continue;
    }
    Matrix<T> S = k.transpose() * q * T(scale);
    if (h.score_cap > 0) S = Matrix<T>(S.unaryExpr([&](const T& s) { return capped<T>(s, h.score_cap); }));
    if (place.tables != nullptr) {
      Matrix<T> S_distance = matrix_if<T>(true, l_z, l_x);
      add_relative(S_distance, i, q, k, W, place.Mask, place.tables->P, place.s, h);
      S += S_distance * T(scale);
    }
    const Hashing& chunks = shared_query_key ? h.hashing : h.ring;
    const bool hashed = chunks.hashes(l_x);
    MaskMatrix Mask = place.Mask;
    Matrix<double> N;
    if (hashed) {
      const auto R = shared_query_key ? W.R[static_cast<std::size_t>(i)] : Matrix<double>();
      N = sightings<T>(chunks, R, q, place.Mask);
      Mask = (N.array() > 0).template cast<typename MaskMatrix::Scalar>();
      if (shared_query_key) see_others(Mask);
    }
    for (Index t_z = 1; t_z <= l_z; ++t_z)
      for (Index t_x = 1; t_x <= l_x; ++t_x) {
        T& s = entry(S, t_z, t_x);
        if (hashed && entry(Mask, t_z, t_x)) s += std::log(entry(N, t_z, t_x));
        if (!entry(Mask, t_z, t_x)) {
          s = T(-std::numeric_limits<double>::infinity());
          continue;
        }
        if (place.tables != nullptr) s += distance_bias<T>(t_z, t_x, i + 1, scale, place.tables->B, h);
        s += std::log(static_cast<double>(pattern.times(t_z, t_x, h.bidirectional ? l_z : 0)));
      }
    named("S" + of_head, S);
    if (h.sinks) {  // one more row, whose probabilities no value has
      S.conservativeResize(l_z + 1, l_x);
      S.row(l_z).setConstant(W.sink[i]);
    }
    const Matrix<T> probabilities = softmax(S);
    Y.middleRows(row, v.rows()) = v * named<T>("A" + of_head, probabilities.topRows(l_z));
    row += v.rows();
  }
  if (h.global_projections) {
    const Index global = std::min(pattern.global, l_x);
    Y.leftCols(global) = global_heads(X, W, h, scale_of(0)).leftCols(global);
  }
  if (h.gated_heads)
    Y = Y.cwiseProduct(affine(W.W_gate, X, W.b_gate).unaryExpr([](const T& x) {
           return T(sigma(x));
         })).eval();
  return affine(W.W.W_o, named("Y", Y), W.W.b_o);
}

}  // namespace qkv::formal

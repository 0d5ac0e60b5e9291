#pragma once

// How a model knows the order of its tokens: vectors that are added to embeddings, queries and keys that are
// turned, and scores that know distances.

#include <cmath>
#include <numbers>

#include "formal/attention.h"
#include "formal/embedding.h"
#include "formal/variations/parameters.h"

namespace qkv::formal {

// Sines and cosines of d numbers for the position t, from 1. REQUIRES: d even.
template <typename T>
Vector<T> sinusoid(Index t, Index d, const VariedHyperparameters& h) {
  if (h.position_vectors == PositionVectors::section_5)
    return hard_coded_positional_embedding<T>(t, d, h.l_max);
  const bool closed = h.position_vectors == PositionVectors::closed;
  const Index first = closed ? h.first_position : 0, steps = closed ? std::max<Index>(1, d / 2 - 1) : d / 2;
  Vector<T> e_p(d);
  for (Index i = 1; i <= d / 2; ++i) {
    const double angle = static_cast<double>(first + t - 1) /
                         std::pow(h.position_base, static_cast<double>(i - 1) / static_cast<double>(steps));
    const bool in_turn = h.position_vectors == PositionVectors::sinusoidal;
    entry(e_p, in_turn ? 2 * i - 1 : i, 1) = T(std::sin(angle));
    entry(e_p, in_turn ? 2 * i : d / 2 + i, 1) = T(std::cos(angle));
  }
  return e_p;
}

// Jaegle et al. 2021, section 3.2: x from -1 to 1 over the l_max positions, sin(pi f_k x), cos(pi f_k x),
// with K = (d - 1) / 2 frequencies from 1 to l_max / 2, evenly spaced; [d].
template <typename T>
Vector<T> fourier_features(Index t, Index d, Index l_max) {
  Vector<T> e_p = Vector<T>::Constant(d, T(0));
  const Index K = (d - 1) / 2;
  const double x = l_max == 1 ? -1 : 2.0 * static_cast<double>(t - 1) / static_cast<double>(l_max - 1) - 1;
  e_p[0] = x;
  for (Index k = 1; k <= K; ++k) {
    const double step = K == 1 ? 0 : (static_cast<double>(l_max) / 2 - 1) / static_cast<double>(K - 1),
                 angle = std::numbers::pi * (1 + static_cast<double>(k - 1) * step) * x;
    e_p[k] = std::sin(angle);
    e_p[K + k] = std::cos(angle);
  }
  return e_p;
}

// e_p of the position t, from 1. In a grid a row's vector and a column's are added, or stand one above the
// other.
template <typename T>
Vector<T> position_vector(Index t, const VariedEmbedding<T>& E, const VariedHyperparameters& h) {
  const Index d = h.d_sum();
  Vector<T> e_p = Vector<T>::Constant(d, T(0));
  if (h.position_vectors == PositionVectors::none) return e_p;
  if (h.position_vectors == PositionVectors::Fourier) return fourier_features<T>(t, d, h.l_max);
  const bool learned = h.position_vectors == PositionVectors::learned;
  if (h.grid == 0) return learned ? positional_embedding(t, E.W_p) : sinusoid<T>(t, d, h);
  const Index t_row = (t - 1) / h.grid + 1, t_column = (t - 1) % h.grid + 1;
  const Vector<T> row = learned ? positional_embedding(t_row, E.W_p) : sinusoid<T>(t_row, d / 2, h),
                  of_column =
                      learned ? positional_embedding(t_column, E.W_column) : sinusoid<T>(t_column, d / 2, h);
  e_p.head(row.size()) += row;
  e_p.tail(of_column.size()) += of_column;
  return e_p;
}

// RoPE (Su et al. 2021, eq. 34): column t of X [d_attn x l] has the pairs of its first d_rot entries turned
// by the angles (t - 1) base^(-2 (i - 1) / d_rot), i in [d_rot / 2], or only the first d_turned / 2 pairs. In
// a grid half of the pairs are turned by the row as if there were no others, half by the column.
template <typename T>
Matrix<T> turned(Matrix<T> X, const VariedHyperparameters& h) {
  for (Index t = 1; t <= X.cols(); ++t)
    for (Index i = 1; i <= (h.d_turned > 0 ? h.d_turned : h.d_rot) / 2; ++i) {
      const Index pairs = h.grid > 0 ? h.d_rot / 4 : h.d_rot / 2, place = h.grid == 0  ? t - 1
                                                                          : i <= pairs ? (t - 1) / h.grid
                                                                                       : (t - 1) % h.grid;
      const double angle =
          static_cast<double>(place) *
          std::pow(h.theta_base, -static_cast<double>((i - 1) % pairs) / static_cast<double>(pairs));
      const Index first = h.interleaved ? 2 * i - 1 : i, second = h.interleaved ? 2 * i : i + h.d_rot / 2;
      const T a = entry(X, first, t), b = entry(X, second, t);
      entry(X, first, t) = a * std::cos(angle) - b * std::sin(angle);
      entry(X, second, t) = a * std::sin(angle) + b * std::cos(angle);
    }
  return X;
}

// ALiBi (Press et al. 2022): the slope of head h of H. For a power of two 2^(-8 h / H); else those of the
// power of two below, then those of odd h of twice as many heads. evens_first (MPT): those of the power of
// two above, of even h, then of odd h.
inline double alibi_slope(Index h, Index H, Alibi alibi) {
  Index power = 1;
  while (2 * power <= H) power *= 2;
  const auto slope = [](Index i, Index of) {
    return std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(of));
  };
  if (alibi == Alibi::evens_first && H > power)
    return slope(h <= power ? 2 * h : 2 * (h - power) - 1, 2 * power);
  return h <= power ? slope(h, power) : slope(2 * (h - power) - 1, 2 * power);
}

// The row of B, from 1, for a key that stands d = t_x - t_z tokens before the query; behind it d < 0. Keys
// behind have their rows after those of the others.
inline Index distance_row(Index d, const VariedHyperparameters& h) {
  const Index far = std::abs(d);
  if (h.T5_buckets == 0) {
    const Index row = std::min(far, h.distances - 1);
    return d >= 0 || row == 0 ? row + 1 : h.distances + row;
  }
  // Raffel et al. 2020, section 2.1, by their code: half of a side's buckets are one distance each, the
  // others grow by a factor up to `distances`.
  const Index side = h.bidirectional ? h.T5_buckets / 2 : h.T5_buckets, exact = side / 2;
  Index bucket = far;
  if (far >= exact)
    bucket =
        exact + static_cast<Index>(std::log(static_cast<double>(far) / static_cast<double>(exact)) /
                                   std::log(static_cast<double>(h.distances) / static_cast<double>(exact)) *
                                   static_cast<double>(side - exact));
  return std::min(bucket, side - 1) + (d < 0 ? side : 0) + 1;
}

// The term of distance, which is added to the scaled score of a query t_x and a key t_z of head i, from 1.
template <typename T>
T distance_bias(Index t_z, Index t_x, Index i, double scale, const Matrix<T>& B,
                const VariedHyperparameters& h) {
  T bias = 0;
  if (h.distances > 0) bias += entry(B, distance_row(t_x - t_z, h), i);
  if (h.alibi != Alibi::none)
    bias -= alibi_slope(i, h.H, h.alibi) *
            static_cast<double>(h.alibi == Alibi::by_sign ? t_x - t_z : std::abs(t_x - t_z)) *
            (h.alibi == Alibi::scaled ? scale : 1);
  return bias;
}

// The vector of distance d in Transformer-XL: sines, then cosines.
template <typename T>
Vector<T> distance_sinusoid(Index d, Index d_e) {
  Vector<T> r(d_e);
  for (Index i = 1; i <= d_e / 2; ++i) {
    const double angle = static_cast<double>(d) *
                         std::pow(10000.0, -2.0 * static_cast<double>(i - 1) / static_cast<double>(d_e));
    r[i - 1] = std::sin(angle);
    r[d_e / 2 + i - 1] = std::cos(angle);
  }
  return r;
}

// The column of P that d = t_x - t_z has (He et al. 2021, eq. 3; the buckets of DeBERTa-v2): small distances
// and large ones' logarithms; those of keys behind the query first, as far as they reach.
inline Index distance_column(Index d, const VariedHyperparameters& h) {
  const Index far = std::abs(d);
  Index bucket = far;
  const double middle = static_cast<double>(h.buckets / 2);
  if (h.buckets > 0 && far > h.buckets / 2)
    bucket =
        h.buckets / 2 +
        static_cast<Index>(std::ceil(std::log(static_cast<double>(far) / middle) /
                                     std::log(static_cast<double>(h.l_rel - 1) / middle) * (middle - 1)));
  const Index span = h.buckets > 0 ? h.buckets : h.l_rel;
  return std::clamp<Index>(d < 0 ? span - bucket : span + bucket, 0, 2 * span - 1) + 1;
}

// Adds the terms of relative attention to the scores S of head i, from 0, [l x l], before they are scaled.
// Queries q and keys k are [d_attn x l]. Text s[t] is that of token t; without s all are of one.
template <typename T>
void add_relative(Matrix<T>& S, Index i, const Matrix<T>& q, const Matrix<T>& k, const VariedAttention<T>& W,
                  const MaskMatrix& Mask, const Matrix<T>& P, const Tokens& s,
                  const VariedHyperparameters& h) {
  if (h.relative == RelativeAttention::none) return;
  const Index row = i * h.d_attn, of = i / (h.H / h.H_kv) * (h.H / h.H_kv);
  const AttentionParameters<T>&W_i = W.W.head[static_cast<std::size_t>(i)],
        &W_kv = W.W.head[static_cast<std::size_t>(of)];
  const auto segment = [&](const Vector<T>& all) { return Vector<T>(all.segment(row, h.d_attn)); };
  for (Index t_x = 1; t_x <= q.cols(); ++t_x)
    for (Index t_z = 1; t_z <= k.cols(); ++t_z) {
      if (!entry(Mask, t_z, t_x)) continue;
      const Index d = t_x - t_z, clipped = h.l_rel > 0 ? std::clamp(d, -h.l_rel, h.l_rel) : d;
      const Vector<T> q_t = column(q, t_x), k_t = column(k, t_z);
      T& score = entry(S, t_z, t_x);
      switch (h.relative) {
        case RelativeAttention::none:
          break;
        case RelativeAttention::Shaw:
        case RelativeAttention::Shaw_both: {
          const Vector<T> a = column(W.A, clipped + (h.bidirectional ? h.l_rel : 0) + 1);
          score += q_t.dot(a);
          if (h.relative == RelativeAttention::Shaw_both) score += k_t.dot(a);
          break;
        }
        case RelativeAttention::Transformer_XL: {
          const Vector<T> r = W.W_d.middleRows(row, h.d_attn) * distance_sinusoid<T>(clipped, h.d_e);
          const Vector<T> moved = q_t + segment(W.v);
          score += k_t.dot(segment(W.u)) + moved.dot(r);
          if (!h.by_text) break;
          // Yang et al. 2019, section 2.5: whether both are of one text, not which it is.
          const Index other = s.empty() || at(s, t_x) == at(s, t_z) ? 1 : 2;
          const Vector<T> of_texts = q_t + segment(W.s);
          score += of_texts.dot(segment(column(W.G, other)));
          break;
        }
        case RelativeAttention::disentangled: {
          // The paper's third term has delta(j, i) where its code, and this, has delta(i, j).
          const Vector<T> p = column(P, distance_column(d, h));
          const auto projected = [&](const Matrix<T>& W_p, const Vector<T>& b) {
            Vector<T> y = W_p.middleRows(row, h.d_attn) * p;
            if (b.size() > 0) y += segment(b);
            return y;
          };
          const auto shared = [&](const Matrix<T>& W_p, const Vector<T>& b) {
            Vector<T> y = W_p * p;
            if (b.size() > 0) y += b;
            return y;
          };
          if (h.by_content)
            score += q_t.dot(h.shared_projections ? shared(W_kv.W_k, W_kv.b_k) : projected(W.W_dk, W.b_dk));
          if (h.by_position)
            score += k_t.dot(h.shared_projections ? shared(W_i.W_q, W_i.b_q) : projected(W.W_dq, W.b_dq));
          break;
        }
      }
    }
}

}  // namespace qkv::formal

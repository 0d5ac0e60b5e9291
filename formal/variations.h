#pragma once

// Algorithm 10 with the variations of later papers: each is a few lines here, and the engine must equal them
// alone and together. What is left at its default is Algorithm 10 as printed.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "formal/loss.h"
#include "formal/transformer.h"

namespace qkv::formal {

// Which of a norm's parts there are. plus_one: RMSnorm with 1 + gamma for gamma (Gemma).
enum class NormKind { layer_norm, layer_scale, layer_plain, RMSnorm, plus_one };
// Where a branch f of a block is normalised: x + f(norm(x)), norm(x + f(x)), x + norm'(f(norm(x))),
// x + norm'(f(x)), x + f(x).
enum class NormPlacement { pre, post, sandwich, branch, none };
// Attention and the perceptron one after the other, both of the same X, or of the same normalised X.
enum class Branches { serial, parallel, one_norm };
enum class QueryKeyNorm { none, heads, whole };

// Hyperparameters of Algorithm 10 and its variations.
struct VariedHyperparameters : Hyperparameters {
  NormKind norm_kind = NormKind::layer_norm;
  NormPlacement placement = NormPlacement::pre;
  Branches branches = Branches::serial;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  Index H_kv = 0;  // heads that have keys and values of their own; 0: H
  Index groups =
      0;  // layer l of L has the parameters of group ((l - 1) groups / L), rounded down, + 1 (ALBERT)
  bool learned_positions = true;  // W_p is added to the embeddings
  Index d_rot = 0;                // of queries and keys, entries that are turned (RoPE)
  bool interleaved = false;       // pairs 2i - 1, 2i instead of i, i + d_rot / 2
  double theta_base = 10000;      // of the angles
  bool alibi = false;
  std::vector<Index> windows;  // of layer l the ((l - 1) mod size) + 1-th; 0: all
  double score_scale = 0;      // 0: 1 / sqrt(d_attn)
  bool gated = false;          // W_2 (f(W_1 X + b_1) .* (W_g X + b_g)) (Shazeer 2020)
  bool qkv_bias = true, out_bias = true, mlp_bias = true;
  double embedding_multiplier = 1, residual_multiplier = 1, logit_multiplier = 1;
};

// gamma [d], beta [d] as the kind has them.
template <typename T>
NormalizationParameters<T> varied_norm(NormKind kind, Index d) {
  NormalizationParameters<T> n;
  if (kind != NormKind::layer_plain) n.gamma = Vector<T>::Constant(d, T(0));
  if (kind == NormKind::layer_norm) n.beta = Vector<T>::Constant(d, T(0));
  return n;
}

// A layer of Algorithm 10 with what its variations add.
template <typename T>
struct VariedLayer {
  MHAttentionParameters<T> W;
  Vector<T> gamma_q, gamma_k;                                 // of the norms of queries and keys
  NormalizationParameters<T> norm1, norm2, branch1, branch2;  // branch: norm' above
  MLPParameters<T> mlp;
  Matrix<T> W_g;  // [d_mlp x d_e]
  Vector<T> b_g;  // [d_mlp]

  VariedLayer() = default;
  explicit VariedLayer(const VariedHyperparameters& h)
      : W(h.H, h.d_attn, h.d_mid, h.d_e, h.d_e, h.d_e), mlp(h.d_e, h.d_mlp) {
    const bool whole = h.query_key_norm == QueryKeyNorm::whole;
    if (h.query_key_norm != QueryKeyNorm::none) {
      gamma_q = Vector<T>::Constant(h.d_attn * (whole ? h.H : 1), T(0));
      gamma_k = Vector<T>::Constant(h.d_attn * (whole ? h.H_kv : 1), T(0));
    }
    const bool outer = h.placement == NormPlacement::branch || h.placement == NormPlacement::sandwich;
    const bool inner = h.placement != NormPlacement::branch && h.placement != NormPlacement::none;
    if (inner) norm1 = varied_norm<T>(h.norm_kind, h.d_e);
    if (inner && h.branches != Branches::one_norm) norm2 = varied_norm<T>(h.norm_kind, h.d_e);
    if (outer) branch1 = branch2 = varied_norm<T>(h.norm_kind, h.d_e);
    if (h.gated) W_g = Matrix<T>::Constant(h.d_mlp, h.d_e, T(0));
    if (h.gated && h.mlp_bias) b_g = Vector<T>::Constant(h.d_mlp, T(0));
    if (!h.mlp_bias) mlp.b_mlp1 = mlp.b_mlp2 = Vector<T>();
    if (!h.out_bias) W.b_o = Vector<T>();
    if (!h.qkv_bias)
      for (AttentionParameters<T>& head : W.head) head.b_q = head.b_k = head.b_v = Vector<T>();
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    MHAttentionParameters<T>::visit(prefix + "W.", f, p.W...);
    visit_parameter(prefix + "gamma_q", f, p.gamma_q...);
    visit_parameter(prefix + "gamma_k", f, p.gamma_k...);
    NormalizationParameters<T>::visit(prefix, "1", f, p.norm1...);
    NormalizationParameters<T>::visit(prefix, "2", f, p.norm2...);
    NormalizationParameters<T>::visit(prefix, "_branch1", f, p.branch1...);
    NormalizationParameters<T>::visit(prefix, "_branch2", f, p.branch2...);
    MLPParameters<T>::visit(prefix, "1", "2", f, p.mlp...);
    visit_parameter(prefix + "W_g", f, p.W_g...);
    visit_parameter(prefix + "b_g", f, p.b_g...);
  }
};

// theta of Algorithm 10 with variations.
template <typename T>
struct VariedTheta {
  VariedHyperparameters hyper;
  EmbeddingParameters<T> embedding;
  std::vector<VariedLayer<T>> layer;
  NormalizationParameters<T> norm;

  explicit VariedTheta(const VariedHyperparameters& h)
      : hyper(h), embedding(h, h.d_e), layer(static_cast<std::size_t>(h.groups), VariedLayer<T>(h)) {
    if (!h.learned_positions) embedding.W_p = Matrix<T>();
    if (h.placement != NormPlacement::post && h.placement != NormPlacement::none)
      norm = varied_norm<T>(h.norm_kind, h.d_e);
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_e", f, p.embedding.W_e...);
    visit_parameter(prefix + "W_p", f, p.embedding.W_p...);
    visit_each(prefix + "layer", f, p.layer...);
    NormalizationParameters<T>::visit(prefix, "", f, p.norm...);
    visit_parameter(prefix + "W_u", f, p.embedding.W_u...);
  }
};

// The norm of each column: X [d x l] -> [d x l].
template <typename T>
Matrix<T> varied_normalize(const Matrix<T>& X, const NormalizationParameters<T>& n,
                           const VariedHyperparameters& h) {
  Matrix<T> X_hat(X.rows(), X.cols());
  for (Index t = 1; t <= X.cols(); ++t) {
    const Vector<T> e = column(X, t);
    Vector<T> gamma = n.gamma;
    if (h.norm_kind == NormKind::plus_one) gamma.array() += T(1);
    const bool rms = h.norm_kind == NormKind::RMSnorm || h.norm_kind == NormKind::plus_one;
    column(X_hat, t) = rms ? RMSnorm(e, gamma, h.epsilon) : layer_norm(e, gamma, n.beta, h.epsilon);
  }
  return X_hat;
}

// RoPE (Su et al. 2021, eq. 34): column t of X [d_attn x l] has the pairs of its first d_rot entries turned
// by the angles (t - 1) base^(-2 (i - 1) / d_rot), i in [d_rot / 2].
template <typename T>
Matrix<T> turned(Matrix<T> X, const VariedHyperparameters& h) {
  for (Index t = 1; t <= X.cols(); ++t)
    for (Index i = 1; i <= h.d_rot / 2; ++i) {
      const double angle =
          static_cast<double>(t - 1) *
          std::pow(h.theta_base, -2.0 * static_cast<double>(i - 1) / static_cast<double>(h.d_rot));
      const Index first = h.interleaved ? 2 * i - 1 : i, second = h.interleaved ? 2 * i : i + h.d_rot / 2;
      const T a = entry(X, first, t), b = entry(X, second, t);
      entry(X, first, t) = a * std::cos(angle) - b * std::sin(angle);
      entry(X, second, t) = a * std::sin(angle) + b * std::cos(angle);
    }
  return X;
}

// ALiBi (Press et al. 2022): the slope of head h of H. For a power of two 2^(-8 h / H); else those of the
// power of two below, then those of odd h of twice as many heads.
inline double alibi_slope(Index h, Index H) {
  Index power = 1;
  while (2 * power <= H) power *= 2;
  if (h <= power) return std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power));
  return std::exp2(-8.0 * static_cast<double>(2 * (h - power) - 1) / static_cast<double>(2 * power));
}

// Algorithm 5 with Z = X and the variations: `window`: a query sees so many tokens, itself the last; 0: all.
template <typename T>
Matrix<T> varied_attention(const Matrix<T>& X, const VariedLayer<T>& layer, Index window,
                           const VariedHyperparameters& h) {
  const Index l = X.cols(), group = h.H / h.H_kv;
  MaskMatrix Mask = unidirectional_mask(l, l);
  for (Index t_z = 1; t_z <= l; ++t_z)
    for (Index t_x = 1; t_x <= l; ++t_x)
      if (window > 0 && t_z <= t_x - window) entry(Mask, t_z, t_x) = false;
  Matrix<T> Q(h.H * h.d_attn, l), K(h.H_kv * h.d_attn, l);
  for (Index i = 0; i < h.H; ++i) {
    const AttentionParameters<T>& W = layer.W.head[static_cast<std::size_t>(i)];
    Q.middleRows(i * h.d_attn, h.d_attn) = affine(W.W_q, X, W.b_q);
    if (i % group == 0) K.middleRows(i / group * h.d_attn, h.d_attn) = affine(W.W_k, X, W.b_k);
  }
  if (h.query_key_norm != QueryKeyNorm::none) {
    const auto normed = [&](Matrix<T>& M, const Vector<T>& gamma) {
      for (Index t = 1; t <= l; ++t)
        for (Index r = 0; r < M.rows(); r += gamma.size()) {
          const Vector<T> e = column(M, t).segment(r, gamma.size());
          column(M, t).segment(r, gamma.size()) = RMSnorm(e, gamma, h.epsilon);
        }
    };
    normed(Q, layer.gamma_q);
    normed(K, layer.gamma_k);
  }
  const double scale = h.score_scale > 0 ? h.score_scale : 1 / std::sqrt(static_cast<double>(h.d_attn));
  Matrix<T> Y(h.H * h.d_mid, l);
  for (Index i = 0; i < h.H; ++i) {
    const AttentionParameters<T>& W = layer.W.head[static_cast<std::size_t>(i / group * group)];
    const Matrix<T> q = turned<T>(Q.middleRows(i * h.d_attn, h.d_attn), h),
                    k = turned<T>(K.middleRows(i / group * h.d_attn, h.d_attn), h);
    Matrix<T> S = k.transpose() * q * T(scale);
    for (Index t_z = 1; t_z <= l; ++t_z)
      for (Index t_x = 1; t_x <= l; ++t_x) {
        if (h.alibi) entry(S, t_z, t_x) -= alibi_slope(i + 1, h.H) * static_cast<double>(std::abs(t_x - t_z));
        if (!entry(Mask, t_z, t_x)) entry(S, t_z, t_x) = T(-std::numeric_limits<double>::infinity());
      }
    Y.middleRows(i * h.d_mid, h.d_mid) = affine(W.W_v, X, W.b_v) * softmax(S);
  }
  return affine(layer.W.W_o, Y, layer.W.b_o);
}

// The perceptron, gated where the hyperparameters say so.
template <typename T>
Matrix<T> varied_MLP(const Matrix<T>& X, const VariedLayer<T>& layer, const VariedHyperparameters& h) {
  if (!h.gated) return MLP(X, layer.mlp, Activation::GELU, h);
  const Matrix<T> f = activate(h.activation, Activation::GELU, affine(layer.mlp.W_mlp1, X, layer.mlp.b_mlp1));
  return affine<T>(layer.mlp.W_mlp2, f.cwiseProduct(affine(layer.W_g, X, layer.b_g)), layer.mlp.b_mlp2);
}

// Algorithm 10 with variations, up to the logits: x -> [N_V x length(x)].
template <typename T>
Matrix<T> varied_logits(const Tokens& x, const VariedTheta<T>& theta) {
  const VariedHyperparameters& h = theta.hyper;
  Matrix<T> X(h.d_e, length(x));
  for (Index t = 1; t <= length(x); ++t) {
    Vector<T> e = token_embedding(at(x, t), theta.embedding.W_e) * T(h.embedding_multiplier);
    if (h.learned_positions) e += positional_embedding(t, theta.embedding.W_p);
    column(X, t) = e;
  }
  const T m = h.residual_multiplier;
  for (std::size_t i = 0; i < static_cast<std::size_t>(h.L); ++i) {
    const VariedLayer<T>& layer = theta.layer[i * theta.layer.size() / static_cast<std::size_t>(h.L)];
    const Index window = h.windows.empty() ? 0 : h.windows[i % h.windows.size()];
    const auto attention = [&](const Matrix<T>& X) { return varied_attention(X, layer, window, h); };
    const auto mlp = [&](const Matrix<T>& X) { return varied_MLP(X, layer, h); };
    const auto norm = [&](const Matrix<T>& X, const NormalizationParameters<T>& n) {
      return varied_normalize(X, n, h);
    };
    const auto add = [&](const auto& f, const NormalizationParameters<T>& inner,
                         const NormalizationParameters<T>& outer) {
      switch (h.placement) {
        case NormPlacement::pre:
          X = Matrix<T>(X + m * f(norm(X, inner)));
          break;
        case NormPlacement::post:
          X = norm(Matrix<T>(X + m * f(X)), inner);
          break;
        case NormPlacement::sandwich:
          X = Matrix<T>(X + m * norm(f(norm(X, inner)), outer));
          break;
        case NormPlacement::branch:
          X = Matrix<T>(X + m * norm(f(X), outer));
          break;
        case NormPlacement::none:
          X = Matrix<T>(X + m * f(X));
          break;
      }
    };
    if (h.branches == Branches::serial) {
      add(attention, layer.norm1, layer.branch1);
      add(mlp, layer.norm2, layer.branch2);
    } else {
      const Matrix<T> first = norm(X, layer.norm1),
                      second = h.branches == Branches::one_norm ? first : norm(X, layer.norm2);
      X = Matrix<T>(X + m * (attention(first) + mlp(second)));
    }
  }
  if (h.placement != NormPlacement::post && h.placement != NormPlacement::none)
    X = varied_normalize(X, theta.norm, h);
  return T(h.logit_multiplier) * unembedding_matrix(theta.embedding, h) * X;
}

// P [N_V x length(x)].
template <typename T>
Matrix<T> VariedTransformer(const Tokens& x, const VariedTheta<T>& theta) {
  return softmax(varied_logits(x, theta));
}

// Algorithm 13, lines 3-5.
template <typename T>
T VariedLoss(const Tokens& x, const VariedTheta<T>& theta) {
  return next_token_loss(VariedTransformer(x, theta), x);
}

}  // namespace qkv::formal

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
// ScaleNorm: one gamma for all (Nguyen & Salazar 2019); capsule: the squash function (Sabour et al. 2017).
enum class NormKind { layer_norm, layer_scale, layer_plain, RMSnorm, plus_one, ScaleNorm, capsule };
// Where a branch f of a block is normalised: x + f(norm(x)), norm(x + f(x)), x + norm'(f(norm(x))),
// x + norm'(f(x)), x + f(x), norm(x) + f(norm(x)).
enum class NormPlacement { pre, post, sandwich, branch, none, stream };
// Attention and the perceptron one after the other, both of the same X, or of the same normalised X; or of
// two streams: X_1 + f(X_2), then X_2 + g(that) (Gomez et al. 2017, eq. 8; Kitaev et al. 2020).
enum class Branches { serial, parallel, one_norm, reversible };
// heads, whole: RMSnorm; layer, layer_heads: layer_norm of each head, by the same or by its own weights.
enum class QueryKeyNorm { none, heads, whole, layer, layer_heads };

// What scores know of distances by vectors (Shaw et al. 2018; Huang et al. 2020; Dai et al. 2019; He et al.
// 2021).
enum class RelativeAttention { none, Shaw, Shaw_both, Transformer_XL, disentangled };

// Which of the tokens before it a token sees: a union, all of them where it has no part.
struct SparsePattern {
  Index window = 0, dilation = 1;  // the last ones, or every dilation-th of them (Longformer)
  Index stride = 0;                // those at distances that it divides (Sparse Transformer, strided)
  Index global = 0;                // the first
  Index block = 0;  // of its block, and the last `summary` of each block (Sparse Transformer, fixed)
  Index neighbours = 0, summary = 0;

  // Tokens t_z and t_x count from 1.
  bool sees(Index t_z, Index t_x) const {
    const Index d = t_x - t_z;
    if (window == 0 && stride == 0 && global == 0 && block == 0) return true;
    if (d % dilation == 0 && d / dilation < window) return true;
    if (stride > 0 && d % stride == 0) return true;
    if (t_z <= global || t_x <= global) return true;
    if (block == 0) return false;
    return (t_x - 1) / block - (t_z - 1) / block <= neighbours || (t_z - 1) % block >= block - summary;
  }
};

// Hyperparameters of Algorithm 10 and its variations.
struct VariedHyperparameters : Hyperparameters {
  NormKind norm_kind = NormKind::layer_norm;
  NormPlacement placement = NormPlacement::pre;
  bool final_norm = true;  // X is normalised behind the last layer; of post and none it never is
  Branches branches = Branches::serial;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  Index H_kv = 0;                 // heads that have keys and values of their own; 0: H
  std::vector<Index> head_sizes;  // d_attn and d_mid of each head; none: all have those of Hyperparameters
  Index groups =
      0;  // layer l of L has the parameters of group ((l - 1) groups / L), rounded down, + 1 (ALBERT)
  bool learned_positions = true;  // W_p is added to the embeddings
  Index grid = 0;                 // tokens in a row: positions are rows and columns; 0: they are numbers
  Index d_axial = 0;  // entries that are the row's, above those of the column (Ho et al. 2019); 0: a sum
  bool unit_embeddings = false;  // the columns of W_e, and the rows of W_u, have length 1 (FixNorm)
  Index d_rot = 0;               // of queries and keys, entries that are turned (RoPE)
  bool interleaved = false;      // pairs 2i - 1, 2i instead of i, i + d_rot / 2
  double theta_base = 10000;     // of the angles
  bool alibi = false, alibi_scaled = false;  // scaled: as scores are
  Index distances = 0;  // each head has a number for so many distances, the last for all beyond; 0: none
  RelativeAttention relative = RelativeAttention::none;
  Index l_rel = 0;    // tokens farther than this count as this far; 0 (Transformer-XL): none does
  Index buckets = 0;  // of disentangled: distances that have a vector, the larger ones share; 0: all
  bool by_content = true, by_position = true, shared_projections = false, normed_distances = false;
  std::vector<SparsePattern> patterns;  // of layer l the ((l - 1) mod size) + 1-th; none: all
  std::vector<bool> shared_query_key;   // likewise whether keys are queries of unit mean square (Reformer)
  double score_scale = 0;               // 0: 1 / sqrt(d_attn)
  bool gated = false;                   // W_2 (f(W_1 X + b_1) .* (W_g X + b_g)) (Shazeer 2020)
  bool qkv_bias = true, out_bias = true, mlp_bias = true;
  double embedding_multiplier = 1, residual_multiplier = 1, logit_multiplier = 1;
  double clip = 0;                      // entries of q, k and v stay in [-clip, clip]; 0: in no bounds
  double score_cap = 0, logit_cap = 0;  // s becomes cap tanh(s / cap); 0: it stays
  bool sinks = false;                   // each head has a score that only the softmax's denominator knows
  Index d_latent = 0;                   // keys and values are made of a latent (MLA); 0: of X
  Index d_query_latent = 0;             // and queries
  Index further_layers = 0;             // h -> f(W h + b) of the perceptron
  Index E = 0;                          // experts; 0: one perceptron
  Index k = 1, d_expert = 0;            // of a token the k best, of so many hidden units
  bool sigmoid_affinities = false, renormalized = false;
  double expert_scale = 1;
  Index d_shared = 0;         // hidden units of a perceptron beside the experts; 0: none
  bool shared_gated = false;  // it counts sigmoid(w . x)

  // Other hyperparameters, of layers that differ, and which each layer has, in turn: 0 are these, i + 1 is
  // kinds[i].
  std::vector<VariedHyperparameters> kinds;
  std::vector<Index> kind_of_layer;

  // Of layer l, from 0.
  std::size_t kind(std::size_t l) const {
    return kind_of_layer.empty() ? 0 : static_cast<std::size_t>(kind_of_layer[l % kind_of_layer.size()]);
  }
  const VariedHyperparameters& of_layer(std::size_t l) const {
    return kind(l) == 0 ? *this : kinds[kind(l) - 1];
  }
  bool shares(std::size_t l) const {
    return !shared_query_key.empty() && shared_query_key[l % shared_query_key.size()];
  }
  bool ends_with_norm() const {
    return final_norm && placement != NormPlacement::post && placement != NormPlacement::none;
  }
  // Of what leaves the last layer.
  Index d_out() const { return branches == Branches::reversible ? 2 * d_e : d_e; }
  // Of head i, from 0: entries of its queries and keys, and the first of them among those of all heads.
  Index size(Index i) const { return head_sizes.empty() ? d_attn : head_sizes[static_cast<std::size_t>(i)]; }
  Index first_row(Index i) const { return i == 0 ? 0 : first_row(i - 1) + size(i - 1); }
};

// A perceptron as it varies.
template <typename T>
struct VariedPerceptron {
  MLPParameters<T> mlp;
  Matrix<T> W_g;                     // [d_mlp x d_e]
  Vector<T> b_g;                     // [d_mlp]
  std::vector<Matrix<T>> W_further;  // [d_mlp x d_mlp] each
  std::vector<Vector<T>> b_further;  // [d_mlp]

  VariedPerceptron() = default;
  VariedPerceptron(const VariedHyperparameters& h, Index d_mlp, bool bias) : mlp(h.d_e, d_mlp) {
    if (h.gated) W_g = Matrix<T>::Constant(d_mlp, h.d_e, T(0));
    if (h.gated && bias) b_g = Vector<T>::Constant(d_mlp, T(0));
    if (!bias) mlp.b_mlp1 = mlp.b_mlp2 = Vector<T>();
    const auto further = static_cast<std::size_t>(h.further_layers);
    W_further.assign(further, Matrix<T>::Constant(d_mlp, d_mlp, T(0)));
    b_further.assign(further, bias ? Vector<T>::Constant(d_mlp, T(0)) : Vector<T>());
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    MLPParameters<T>::visit(prefix, "1", "2", f, p.mlp...);
    visit_parameter(prefix + "W_g", f, p.W_g...);
    visit_parameter(prefix + "b_g", f, p.b_g...);
    const std::size_t further = std::get<0>(std::tie(p...)).W_further.size();
    for (std::size_t i = 0; i < further; ++i) {
      visit_parameter(prefix + "W_further", f, p.W_further[i]...);
      visit_parameter(prefix + "b_further", f, p.b_further[i]...);
    }
  }
};

// gamma [d], beta [d] as the kind has them.
template <typename T>
NormalizationParameters<T> varied_norm(NormKind kind, Index d) {
  NormalizationParameters<T> n;
  if (kind != NormKind::layer_plain && kind != NormKind::capsule)
    n.gamma = Vector<T>::Constant(kind == NormKind::ScaleNorm ? 1 : d, T(0));
  if (kind == NormKind::layer_norm) n.beta = Vector<T>::Constant(d, T(0));
  return n;
}

// A layer of Algorithm 10 with what its variations add.
template <typename T>
struct VariedLayer {
  MHAttentionParameters<T> W;
  Vector<T> gamma_q, gamma_k, beta_q, beta_k;                 // of the norms of queries and keys
  NormalizationParameters<T> norm1, norm2, branch1, branch2;  // branch: norm' above
  Vector<T> sink;                                             // [H]
  Matrix<T> A;                 // [d_attn x l_rel + 1] of Shaw: column d + 1 is of distance d
  Matrix<T> W_d, W_dk, W_dq;   // [H d_attn x d_e]
  Vector<T> u, v, b_dk, b_dq;  // [H d_attn]
  Matrix<T> W_c, W_cq;         // of latents: [d_latent + d_rot x d_e], [d_query_latent x d_e]
  Vector<T> b_c, b_cq, gamma_c, gamma_cq;
  VariedPerceptron<T> mlp;                  // or:
  Matrix<T> W_r;                            // [E x d_e], the router
  std::vector<VariedPerceptron<T>> expert;  // E, without biases
  VariedPerceptron<T> shared;
  Matrix<T> w_shared;  // [1 x d_e]

  VariedLayer() = default;
  VariedLayer(const VariedHyperparameters& h, bool shared_query_key)
      : W(h.H, h.d_attn, h.d_mid, h.d_query_latent > 0 ? h.d_query_latent : h.d_e,
          h.d_latent > 0 ? h.d_latent : h.d_e, h.d_e) {
    if (!h.head_sizes.empty()) {
      for (Index i = 0; i < h.H; ++i)
        W.head[static_cast<std::size_t>(i)] = AttentionParameters<T>(h.size(i), h.size(i), h.d_e, h.d_e);
      W.W_o = Matrix<T>::Constant(h.d_e, h.first_row(h.H), T(0));
    }
    if (h.d_latent > 0) {
      W_c = Matrix<T>::Constant(h.d_latent + h.d_rot, h.d_e, T(0));
      gamma_c = Vector<T>::Constant(h.d_latent, T(0));
      if (h.qkv_bias) b_c = Vector<T>::Constant(h.d_latent + h.d_rot, T(0));
      for (AttentionParameters<T>& head : W.head)
        head.W_k = Matrix<T>::Constant(h.d_attn - h.d_rot, h.d_latent, T(0));
    }
    if (h.d_query_latent > 0) {
      W_cq = Matrix<T>::Constant(h.d_query_latent, h.d_e, T(0));
      gamma_cq = Vector<T>::Constant(h.d_query_latent, T(0));
      if (h.qkv_bias) b_cq = Vector<T>::Constant(h.d_query_latent, T(0));
    }
    if (h.sinks) sink = Vector<T>::Constant(h.H, T(0));
    const Matrix<T> to_heads = Matrix<T>::Constant(h.H * h.d_attn, h.d_e, T(0));
    const Vector<T> of_heads = Vector<T>::Constant(h.H * h.d_attn, T(0));
    if (h.relative == RelativeAttention::Shaw || h.relative == RelativeAttention::Shaw_both)
      A = Matrix<T>::Constant(h.d_attn, h.l_rel + 1, T(0));
    if (h.relative == RelativeAttention::Transformer_XL) {
      W_d = to_heads;
      u = v = of_heads;
    }
    if (h.relative == RelativeAttention::disentangled && !h.shared_projections) {
      if (h.by_content) W_dk = to_heads;
      if (h.by_position) W_dq = to_heads;
      if (h.qkv_bias && h.by_content) b_dk = of_heads;
      if (h.qkv_bias && h.by_position) b_dq = of_heads;
    }
    if (h.E == 0) {
      mlp = VariedPerceptron<T>(h, h.d_mlp, h.mlp_bias);
    } else {
      W_r = Matrix<T>::Constant(h.E, h.d_e, T(0));
      expert.assign(static_cast<std::size_t>(h.E), VariedPerceptron<T>(h, h.d_expert, false));
    }
    if (h.d_shared > 0) shared = VariedPerceptron<T>(h, h.d_shared, h.mlp_bias);
    if (h.shared_gated) w_shared = Matrix<T>::Constant(1, h.d_e, T(0));
    const bool of_all =
        h.query_key_norm == QueryKeyNorm::whole || h.query_key_norm == QueryKeyNorm::layer_heads;
    if (h.query_key_norm != QueryKeyNorm::none) {
      gamma_q = Vector<T>::Constant(h.d_attn * (of_all ? h.H : 1), T(0));
      gamma_k = Vector<T>::Constant(h.d_attn * (of_all ? h.H_kv : 1), T(0));
    }
    if (h.query_key_norm == QueryKeyNorm::layer) beta_q = beta_k = gamma_q;
    const bool outer = h.placement == NormPlacement::branch || h.placement == NormPlacement::sandwich;
    const bool inner = h.placement != NormPlacement::branch && h.placement != NormPlacement::none;
    if (inner) norm1 = varied_norm<T>(h.norm_kind, h.d_e);
    if (inner && h.branches != Branches::one_norm) norm2 = varied_norm<T>(h.norm_kind, h.d_e);
    if (outer) branch1 = branch2 = varied_norm<T>(h.norm_kind, h.d_e);
    for (AttentionParameters<T>& head : W.head) {
      if (!shared_query_key) break;
      head.W_k = Matrix<T>();
      head.b_k = Vector<T>();
    }
    if (!h.out_bias) W.b_o = Vector<T>();
    if (!h.qkv_bias || h.d_latent > 0)
      for (AttentionParameters<T>& head : W.head) head.b_q = head.b_k = head.b_v = Vector<T>();
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    MHAttentionParameters<T>::visit(prefix + "W.", f, p.W...);
    visit_parameter(prefix + "gamma_q", f, p.gamma_q...);
    visit_parameter(prefix + "gamma_k", f, p.gamma_k...);
    visit_parameter(prefix + "beta_q", f, p.beta_q...);
    visit_parameter(prefix + "beta_k", f, p.beta_k...);
    NormalizationParameters<T>::visit(prefix, "1", f, p.norm1...);
    NormalizationParameters<T>::visit(prefix, "2", f, p.norm2...);
    NormalizationParameters<T>::visit(prefix, "_branch1", f, p.branch1...);
    NormalizationParameters<T>::visit(prefix, "_branch2", f, p.branch2...);
    visit_parameter(prefix + "sink", f, p.sink...);
    visit_parameter(prefix + "A", f, p.A...);
    visit_parameter(prefix + "W_d", f, p.W_d...);
    visit_parameter(prefix + "W_dk", f, p.W_dk...);
    visit_parameter(prefix + "W_dq", f, p.W_dq...);
    visit_parameter(prefix + "u", f, p.u...);
    visit_parameter(prefix + "v", f, p.v...);
    visit_parameter(prefix + "b_dk", f, p.b_dk...);
    visit_parameter(prefix + "b_dq", f, p.b_dq...);
    visit_parameter(prefix + "W_c", f, p.W_c...);
    visit_parameter(prefix + "b_c", f, p.b_c...);
    visit_parameter(prefix + "gamma_c", f, p.gamma_c...);
    visit_parameter(prefix + "W_cq", f, p.W_cq...);
    visit_parameter(prefix + "b_cq", f, p.b_cq...);
    visit_parameter(prefix + "gamma_cq", f, p.gamma_cq...);
    VariedPerceptron<T>::visit(prefix, f, p.mlp...);
    visit_parameter(prefix + "W_r", f, p.W_r...);
    visit_each(prefix + "expert", f, p.expert...);
    VariedPerceptron<T>::visit(prefix + "shared.", f, p.shared...);
    visit_parameter(prefix + "w_shared", f, p.w_shared...);
  }
};

// Tables by which the layers of one kind know distances.
template <typename T>
struct DistanceTables {
  Matrix<T> B;  // [distances x H]
  Matrix<T> P;  // [d_e x 2 l_rel], or buckets for l_rel: of disentangled attention
  NormalizationParameters<T> norm_P;

  DistanceTables() = default;
  explicit DistanceTables(const VariedHyperparameters& h) {
    if (h.distances > 0) B = Matrix<T>::Constant(h.distances, h.H, T(0));
    if (h.relative != RelativeAttention::disentangled) return;
    P = Matrix<T>::Constant(h.d_e, 2 * (h.buckets > 0 ? h.buckets : h.l_rel), T(0));
    if (h.normed_distances) norm_P = varied_norm<T>(h.norm_kind, h.d_e);
  }

  template <typename F, typename... Q>
  static void visit(const std::string& prefix, const F& f, Q&... p) {
    visit_parameter(prefix + "B", f, p.B...);
    visit_parameter(prefix + "P", f, p.P...);
    NormalizationParameters<T>::visit(prefix, "_P", f, p.norm_P...);
  }
};

// theta of Algorithm 10 with variations.
template <typename T>
struct VariedTheta {
  VariedHyperparameters hyper;
  EmbeddingParameters<T> embedding;
  std::vector<VariedLayer<T>> layer;
  NormalizationParameters<T> norm;
  Matrix<T> W_column;                        // [d_e x grid], where W_p is of rows
  std::vector<DistanceTables<T>> distances;  // of each kind of layer that there is

  explicit VariedTheta(const VariedHyperparameters& h) : hyper(h), embedding(h, h.d_out()) {
    for (std::size_t g = 0; g < static_cast<std::size_t>(h.groups); ++g) {
      const auto l =
          static_cast<std::size_t>((static_cast<Index>(g) * h.L + h.groups - 1) / h.groups);  // its first
      layer.push_back(VariedLayer<T>(h.of_layer(l), h.of_layer(l).shares(l)));
    }
    distances.push_back(DistanceTables<T>(h));
    for (const VariedHyperparameters& kind : h.kinds) distances.push_back(DistanceTables<T>(kind));
    if (!h.learned_positions) embedding.W_p = Matrix<T>();
    if (h.learned_positions && h.grid > 0) {
      embedding.W_p =
          Matrix<T>::Constant(h.d_axial > 0 ? h.d_axial : h.d_e, (h.l_max + h.grid - 1) / h.grid, T(0));
      W_column = Matrix<T>::Constant(h.d_e - h.d_axial, h.grid, T(0));
    }
    if (h.ends_with_norm()) norm = varied_norm<T>(h.norm_kind, h.d_out());
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_e", f, p.embedding.W_e...);
    visit_parameter(prefix + "W_p", f, p.embedding.W_p...);
    visit_parameter(prefix + "W_column", f, p.W_column...);
    visit_each(prefix + "layer", f, p.layer...);
    NormalizationParameters<T>::visit(prefix, "", f, p.norm...);
    visit_parameter(prefix + "W_u", f, p.embedding.W_u...);
    visit_each(prefix + "distances", f, p.distances...);
  }
};

// The norm of each column: X [d x l] -> [d x l].
template <typename T>
Matrix<T> varied_normalize(const Matrix<T>& X, const NormalizationParameters<T>& n,
                           const VariedHyperparameters& h) {
  Matrix<T> X_hat(X.rows(), X.cols());
  for (Index t = 1; t <= X.cols(); ++t) {
    const Vector<T> e = column(X, t);
    if (h.norm_kind == NormKind::capsule) {
      using std::sqrt;
      const T squared = e.squaredNorm() + h.epsilon;
      column(X_hat, t) = e * T(sqrt(squared) / (1.0 + squared));
      continue;
    }
    Vector<T> gamma = n.gamma;
    if (h.norm_kind == NormKind::ScaleNorm) gamma = Vector<T>::Constant(e.size(), n.gamma[0]);
    if (h.norm_kind == NormKind::plus_one) gamma.array() += T(1);
    const bool rms = h.norm_kind == NormKind::RMSnorm || h.norm_kind == NormKind::plus_one ||
                     h.norm_kind == NormKind::ScaleNorm;
    column(X_hat, t) = rms ? RMSnorm(e, gamma, h.epsilon) : layer_norm(e, gamma, n.beta, h.epsilon);
  }
  return X_hat;
}

// RoPE (Su et al. 2021, eq. 34): column t of X [d_attn x l] has the pairs of its first d_rot entries turned
// by the angles (t - 1) base^(-2 (i - 1) / d_rot), i in [d_rot / 2]. In a grid half of the pairs are turned
// by the row as if there were no others, half by the column.
template <typename T>
Matrix<T> turned(Matrix<T> X, const VariedHyperparameters& h) {
  for (Index t = 1; t <= X.cols(); ++t)
    for (Index i = 1; i <= h.d_rot / 2; ++i) {
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
// power of two below, then those of odd h of twice as many heads.
inline double alibi_slope(Index h, Index H) {
  Index power = 1;
  while (2 * power <= H) power *= 2;
  if (h <= power) return std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(power));
  return std::exp2(-8.0 * static_cast<double>(2 * (h - power) - 1) / static_cast<double>(2 * power));
}

// cap tanh(x / cap) (Gemma 2).
template <typename T>
T capped(const T& x, double cap) {
  using std::tanh;
  return cap * tanh(x / cap);
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

// The column of P that distance d >= 0 has (He et al. 2021, eq. 3; the buckets of DeBERTa-v2): small ones and
// large ones' logarithms, behind as many of keys after the query.
inline Index distance_column(Index d, const VariedHyperparameters& h) {
  Index bucket = d;
  const double middle = static_cast<double>(h.buckets / 2);
  if (h.buckets > 0 && d > h.buckets / 2)
    bucket =
        h.buckets / 2 +
        static_cast<Index>(std::ceil(std::log(static_cast<double>(d) / middle) /
                                     std::log(static_cast<double>(h.l_rel - 1) / middle) * (middle - 1)));
  const Index span = h.buckets > 0 ? h.buckets : h.l_rel;
  return std::min(bucket + span, 2 * span - 1) + 1;
}

// What relative attention makes of the scores S of head i [l x l], of queries q and keys k [d_attn x l] each,
// before they are scaled.
template <typename T>
void add_relative(Matrix<T>& S, Index i, const Matrix<T>& q, const Matrix<T>& k, const VariedLayer<T>& layer,
                  const Matrix<T>& P, const VariedHyperparameters& h) {
  const Index l = q.cols(), row = i * h.d_attn, of = i / (h.H / h.H_kv) * (h.H / h.H_kv);
  const AttentionParameters<T>&W_i = layer.W.head[static_cast<std::size_t>(i)],
        &W_kv = layer.W.head[static_cast<std::size_t>(of)];
  for (Index t_x = 1; t_x <= l; ++t_x)
    for (Index t_z = 1; t_z <= t_x; ++t_z) {
      const Index d = t_x - t_z;
      const Vector<T> q_t = column(q, t_x), k_t = column(k, t_z);
      T& s = entry(S, t_z, t_x);
      switch (h.relative) {
        case RelativeAttention::none:
          break;
        case RelativeAttention::Shaw_both:
          s += k_t.dot(Vector<T>(column(layer.A, std::min(d, h.l_rel) + 1)));
          [[fallthrough]];
        case RelativeAttention::Shaw:
          s += q_t.dot(Vector<T>(column(layer.A, std::min(d, h.l_rel) + 1)));
          break;
        case RelativeAttention::Transformer_XL: {
          const Vector<T> r = layer.W_d.middleRows(row, h.d_attn) *
                              distance_sinusoid<T>(h.l_rel > 0 ? std::min(d, h.l_rel) : d, h.d_e);
          const Vector<T> moved = q_t + layer.v.segment(row, h.d_attn);
          s += k_t.dot(Vector<T>(layer.u.segment(row, h.d_attn))) + moved.dot(r);
          break;
        }
        case RelativeAttention::disentangled: {
          const Vector<T> p = column(P, distance_column(d, h));
          const auto projected = [&](const Matrix<T>& W, const Vector<T>& b) {
            Vector<T> y = W.middleRows(row, h.d_attn) * p;
            if (b.size() > 0) y += b.segment(row, h.d_attn);
            return y;
          };
          const auto shared = [&](const Matrix<T>& W, const Vector<T>& b) {
            Vector<T> y = W * p;
            if (b.size() > 0) y += b;
            return y;
          };
          if (h.by_content)
            s += q_t.dot(h.shared_projections ? shared(W_kv.W_k, W_kv.b_k)
                                              : projected(layer.W_dk, layer.b_dk));
          if (h.by_position)
            s += k_t.dot(h.shared_projections ? shared(W_i.W_q, W_i.b_q) : projected(layer.W_dq, layer.b_dq));
          break;
        }
      }
    }
}

// Of the norms of latents, and of queries that are keys.
constexpr double kLatentEpsilon = static_cast<double>(1e-6F);

// A token sees itself only where it sees no other.
inline void see_others(MaskMatrix& Mask) {
  for (Index t = 1; t <= Mask.cols(); ++t)
    for (Index t_z = 1; t_z <= Mask.rows(); ++t_z)
      if (t_z != t && entry(Mask, t_z, t)) entry(Mask, t, t) = false;
}

// Algorithm 5 with Z = X and the variations.
template <typename T>
Matrix<T> varied_attention(const Matrix<T>& X, const VariedLayer<T>& layer, const SparsePattern& pattern,
                           bool shared_query_key, const Matrix<T>& B, const Matrix<T>& P,
                           const VariedHyperparameters& h) {
  const Index l = X.cols(), group = h.H / h.H_kv;
  MaskMatrix Mask = unidirectional_mask(l, l);
  for (Index t_z = 1; t_z <= l; ++t_z)
    for (Index t_x = 1; t_x <= l; ++t_x)
      if (t_z <= t_x && !pattern.sees(t_z, t_x)) entry(Mask, t_z, t_x) = false;
  if (shared_query_key) see_others(Mask);
  // What queries, keys and values are made of: X, or latents of it.
  Matrix<T> X_q = X, X_kv = X, K_shared;
  const auto latent = [&](const Matrix<T>& A, const Vector<T>& gamma) {
    Matrix<T> C(A.rows(), l);
    for (Index t = 1; t <= l; ++t) column(C, t) = RMSnorm(Vector<T>(column(A, t)), gamma, kLatentEpsilon);
    return C;
  };
  if (h.d_query_latent > 0) X_q = latent(affine(layer.W_cq, X, layer.b_cq), layer.gamma_cq);
  if (h.d_latent > 0) {
    const Matrix<T> C = affine(layer.W_c, X, layer.b_c);
    X_kv = latent(C.topRows(h.d_latent), layer.gamma_c);
    K_shared = C.bottomRows(h.d_rot);
  }
  const auto clipped = [&](const Matrix<T>& M) {
    return h.clip == 0 ? M : Matrix<T>(M.unaryExpr([&](const T& x) {
      return value(x) > h.clip ? T(h.clip) : value(x) < -h.clip ? T(-h.clip) : x;
    }));
  };
  Matrix<T> Q(h.first_row(h.H), l), K(h.first_row(h.H_kv), l);
  for (Index i = 0; i < h.H; ++i) {
    const AttentionParameters<T>& W = layer.W.head[static_cast<std::size_t>(i)];
    Q.middleRows(h.first_row(i), h.size(i)) = clipped(affine(W.W_q, X_q, W.b_q));
    if (shared_query_key)
      for (Index t = 1; t <= l; ++t) {
        const Vector<T> q = column(Q, t).segment(h.first_row(i), h.size(i));
        column(K, t).segment(h.first_row(i), h.size(i)) =
            RMSnorm(q, Vector<T>(Vector<T>::Constant(q.size(), T(1))), kLatentEpsilon);
      }
    if (i % group != 0 || shared_query_key) continue;
    const Matrix<T> k = clipped(affine(W.W_k, X_kv, W.b_k));
    if (h.d_latent > 0) K.middleRows(h.first_row(i / group), h.d_rot) = K_shared;
    K.middleRows(h.first_row(i / group + 1) - k.rows(), k.rows()) = k;
  }
  if (h.query_key_norm != QueryKeyNorm::none) {
    const bool whole = h.query_key_norm == QueryKeyNorm::whole,
               rms = whole || h.query_key_norm == QueryKeyNorm::heads;
    const auto normed = [&](Matrix<T>& M, const Vector<T>& gamma, const Vector<T>& beta) {
      const Index d = whole ? M.rows() : h.d_attn;
      for (Index t = 1; t <= l; ++t)
        for (Index r = 0; r < M.rows(); r += d) {
          const Vector<T> e = column(M, t).segment(r, d),
                          its_own = gamma.size() == d ? gamma : Vector<T>(gamma.segment(r, d));
          column(M, t).segment(r, d) =
              rms ? RMSnorm(e, its_own, h.epsilon) : layer_norm(e, its_own, beta, h.epsilon);
        }
    };
    normed(Q, layer.gamma_q, layer.beta_q);
    normed(K, layer.gamma_k, layer.beta_k);
  }
  const Index terms = h.relative == RelativeAttention::disentangled ? 1 + h.by_content + h.by_position : 1;
  Matrix<T> Y(layer.W.W_o.cols(), l);
  for (Index i = 0, row = 0; i < h.H; ++i) {
    const double scale =
        h.score_scale > 0 ? h.score_scale : 1 / std::sqrt(static_cast<double>(h.size(i) * terms));
    const AttentionParameters<T>& W = layer.W.head[static_cast<std::size_t>(i / group * group)];
    const Matrix<T> q = turned<T>(Q.middleRows(h.first_row(i), h.size(i)), h),
                    k = turned<T>(K.middleRows(h.first_row(i / group), h.size(i / group)), h);
    Matrix<T> S = k.transpose() * q * T(scale), S_distance = Matrix<T>::Constant(l, l, T(0));
    add_relative(S_distance, i, q, k, layer, P, h);
    for (Index t_z = 1; t_z <= l; ++t_z)
      for (Index t_x = 1; t_x <= l; ++t_x) {
        if (h.score_cap > 0) entry(S, t_z, t_x) = capped<T>(entry(S, t_z, t_x), h.score_cap);
        entry(S, t_z, t_x) += T(scale) * entry(S_distance, t_z, t_x);
        if (h.distances > 0 && t_z <= t_x)
          entry(S, t_z, t_x) += entry(B, std::min(t_x - t_z + 1, h.distances), i + 1);
        if (h.alibi)
          entry(S, t_z, t_x) -= alibi_slope(i + 1, h.H) * static_cast<double>(std::abs(t_x - t_z)) *
                                (h.alibi_scaled ? scale : 1);
        if (!entry(Mask, t_z, t_x)) entry(S, t_z, t_x) = T(-std::numeric_limits<double>::infinity());
      }
    if (h.sinks) {  // one more row, whose probabilities no value has
      S.conservativeResize(l + 1, l);
      S.row(l).setConstant(layer.sink[i]);
    }
    const Matrix<T> probabilities = softmax(S);
    Y.middleRows(row, W.W_v.rows()) = clipped(affine(W.W_v, X_kv, W.b_v)) * probabilities.topRows(l);
    row += W.W_v.rows();
  }
  return affine(layer.W.W_o, Y, layer.W.b_o);
}

// A perceptron, gated or of several hidden layers where the hyperparameters say so.
template <typename T>
Matrix<T> perceptron(const Matrix<T>& X, const VariedPerceptron<T>& p, const VariedHyperparameters& h) {
  const auto f = [&](const Matrix<T>& A) { return activate(h.activation, Activation::GELU, A); };
  Matrix<T> A = f(affine(p.mlp.W_mlp1, X, p.mlp.b_mlp1));
  if (h.gated) A = Matrix<T>(A.cwiseProduct(affine(p.W_g, X, p.b_g)));
  for (std::size_t i = 0; i < p.W_further.size(); ++i) A = f(affine(p.W_further[i], A, p.b_further[i]));
  return affine(p.mlp.W_mlp2, A, p.mlp.b_mlp2);
}

template <typename T>
T sigmoid(const T& x) {
  using std::exp;
  return 1.0 / (1.0 + exp(-x));
}

// What each expert counts for each token, [E x l] (Shazeer et al. 2017, section 2.1; Fedus et al. 2021,
// section 2.1): its affinity where that is among the k highest, else 0.
template <typename T>
Matrix<T> expert_weights(const Matrix<T>& X, const Matrix<T>& W_r, const VariedHyperparameters& h) {
  const Matrix<T> scores = W_r * X;
  Matrix<T> G = h.sigmoid_affinities ? Matrix<T>(scores.unaryExpr([](const T& x) { return sigmoid(x); }))
                                     : softmax(scores);
  for (Index t = 1; t <= X.cols(); ++t) {
    T sum = 0;
    std::vector<bool> kept;
    for (Index e = 1; e <= h.E; ++e) {
      Index better = 0;
      for (Index other = 1; other <= h.E; ++other)
        better += value(entry(G, other, t)) > value(entry(G, e, t));
      kept.push_back(better < h.k);
      if (kept.back()) sum += entry(G, e, t);
    }
    for (Index e = 1; e <= h.E; ++e)
      entry(G, e, t) = kept[static_cast<std::size_t>(e - 1)]
                           ? T(h.expert_scale * entry(G, e, t) / (h.renormalized ? sum : T(1)))
                           : T(0);
  }
  return G;
}

// The perceptron of a layer, or the sum over all its experts.
template <typename T>
Matrix<T> varied_MLP(const Matrix<T>& X, const VariedLayer<T>& layer, const VariedHyperparameters& h) {
  if (h.E == 0) return perceptron(X, layer.mlp, h);
  const Matrix<T> G = expert_weights(X, layer.W_r, h);
  Matrix<T> Y = Matrix<T>::Constant(X.rows(), X.cols(), T(0));
  for (Index e = 0; e < h.E; ++e)
    Y += perceptron(X, layer.expert[static_cast<std::size_t>(e)], h) * G.row(e).asDiagonal();
  if (h.d_shared == 0) return Y;
  Matrix<T> S = perceptron(X, layer.shared, h);
  if (h.shared_gated) {
    const Matrix<T> logits = layer.w_shared * X;
    for (Index t = 1; t <= X.cols(); ++t) column(S, t) *= sigmoid<T>(entry(logits, 1, t));
  }
  return Y + S;
}

// What a segment leaves to the next one (Dai et al. 2019, section 3.2): of each layer the last columns, m at
// most, that its attention has read. They are numbers: no gradient reaches through them.
struct SegmentMemory {
  Index m = 0;
  std::vector<Matrix<double>> M;  // of each layer [d_e x up to m]; none before the first segment
};

// Attention over Z = [SG(M) X] by f: Z [d_e x l_z] -> [d_e x l_z], of which X's columns are wanted. M becomes
// what the next segment is left.
template <typename T, typename F>
Matrix<T> with_memory(const Matrix<T>& X, const F& f, Matrix<double>& M, Index m) {
  Matrix<T> Z(X.rows(), M.cols() + X.cols());
  Z << M.template cast<T>(), X;
  const Index kept = std::min(m, Z.cols());
  M = Z.rightCols(kept).unaryExpr([](const T& z) { return value(z); });
  return f(Z).rightCols(X.cols());
}

// Algorithm 10 with variations, up to the logits: x -> [N_V x length(x)]. With `memory` x goes on with the
// text of an earlier call.
template <typename T>
Matrix<T> varied_logits(const Tokens& x, const VariedTheta<T>& theta, SegmentMemory* memory = nullptr) {
  const VariedHyperparameters& h = theta.hyper;
  if (memory != nullptr) memory->M.resize(static_cast<std::size_t>(h.L), Matrix<double>(h.d_e, 0));
  Matrix<T> X(h.d_e, length(x));
  for (Index t = 1; t <= length(x); ++t) {
    Vector<T> e = token_embedding(at(x, t), theta.embedding.W_e);
    if (h.unit_embeddings) e = Vector<T>(e / e.norm());
    e *= T(h.embedding_multiplier);
    if (h.learned_positions && h.grid == 0) e += positional_embedding(t, theta.embedding.W_p);
    if (h.learned_positions && h.grid > 0) {
      const Vector<T> row = positional_embedding((t - 1) / h.grid + 1, theta.embedding.W_p),
                      of_column = positional_embedding((t - 1) % h.grid + 1, theta.W_column);
      e.head(row.size()) += row;
      e.tail(of_column.size()) += of_column;
    }
    column(X, t) = e;
  }
  Matrix<T> Y = X;  // the other of two streams
  for (std::size_t i = 0; i < static_cast<std::size_t>(h.L); ++i) {
    const VariedLayer<T>& layer = theta.layer[i * theta.layer.size() / static_cast<std::size_t>(h.L)];
    const VariedHyperparameters& its = h.of_layer(i);
    const DistanceTables<T>& tables = theta.distances[h.kind(i)];
    const T m = its.residual_multiplier;
    const Matrix<T> P = its.normed_distances ? varied_normalize(tables.P, tables.norm_P, its) : tables.P;
    const SparsePattern pattern =
        its.patterns.empty() ? SparsePattern() : its.patterns[i % its.patterns.size()];
    const auto over = [&](const Matrix<T>& Z) {
      return varied_attention(Z, layer, pattern, its.shares(i), tables.B, P, its);
    };
    const auto attention = [&](const Matrix<T>& X) {
      return memory == nullptr ? over(X) : with_memory(X, over, memory->M[i], memory->m);
    };
    const auto mlp = [&](const Matrix<T>& X) { return varied_MLP(X, layer, its); };
    const auto norm = [&](const Matrix<T>& X, const NormalizationParameters<T>& n) {
      return varied_normalize(X, n, its);
    };
    const auto add = [&](const auto& f, const NormalizationParameters<T>& inner,
                         const NormalizationParameters<T>& outer) {
      const bool two = h.branches == Branches::reversible;
      Matrix<T>& to = two ? Y : X;
      switch (h.placement) {
        case NormPlacement::pre:
          to = Matrix<T>(to + m * f(norm(X, inner)));
          break;
        case NormPlacement::post:
          X = norm(Matrix<T>(X + m * f(X)), inner);
          break;
        case NormPlacement::sandwich:
          to = Matrix<T>(to + m * norm(f(norm(X, inner)), outer));
          break;
        case NormPlacement::branch:
          to = Matrix<T>(to + m * norm(f(X), outer));
          break;
        case NormPlacement::none:
          to = Matrix<T>(to + m * f(X));
          break;
        case NormPlacement::stream:
          X = norm(X, inner);
          X = Matrix<T>(X + m * f(X));
          break;
      }
      if (two) std::swap(X, Y);
    };
    if (h.branches == Branches::serial || h.branches == Branches::reversible) {
      add(attention, layer.norm1, layer.branch1);
      add(mlp, layer.norm2, layer.branch2);
    } else {
      const Matrix<T> first = norm(X, layer.norm1),
                      second = h.branches == Branches::one_norm ? first : norm(X, layer.norm2);
      X = Matrix<T>(X + m * (attention(first) + mlp(second)));
    }
  }
  if (h.branches == Branches::reversible) {
    Matrix<T> both(2 * h.d_e, X.cols());
    both << Y, X;
    X = both;
  }
  if (h.ends_with_norm()) X = varied_normalize(X, theta.norm, h);
  Matrix<T> W_u = unembedding_matrix(theta.embedding, h);
  for (Index v = 0; h.unit_embeddings && v < W_u.rows(); ++v) W_u.row(v) /= T(W_u.row(v).norm());
  Matrix<T> Z = T(h.logit_multiplier) * W_u * X;
  if (h.logit_cap > 0) Z = Matrix<T>(Z.unaryExpr([&](const T& z) { return capped<T>(z, h.logit_cap); }));
  return Z;
}

// P [N_V x length(x)].
template <typename T>
Matrix<T> VariedTransformer(const Tokens& x, const VariedTheta<T>& theta, SegmentMemory* memory = nullptr) {
  return softmax(varied_logits(x, theta, memory));
}

// Algorithm 13, lines 3-5.
template <typename T>
T VariedLoss(const Tokens& x, const VariedTheta<T>& theta) {
  return next_token_loss(VariedTransformer(x, theta), x);
}

}  // namespace qkv::formal

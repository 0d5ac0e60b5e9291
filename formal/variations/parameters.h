#pragma once

// The parameters theta of Algorithms 8 to 10 with variations.

#include <string>
#include <tuple>
#include <vector>

#include "formal/recurrence.h"
#include "formal/variations/hyperparameters.h"

namespace qkv::formal {

// Zeros [rows x columns] or [d] if `there`, else empty.
template <typename T>
Matrix<T> matrix_if(bool there, Index rows, Index columns) {
  return there ? Matrix<T>(Matrix<T>::Constant(rows, columns, T(0))) : Matrix<T>();
}
template <typename T>
Vector<T> vector_if(bool there, Index d) {
  return there ? Vector<T>(Vector<T>::Constant(d, T(0))) : Vector<T>();
}

// A perceptron with variations.
template <typename T>
struct VariedPerceptron {
  MLPParameters<T> mlp;
  Matrix<T> W_g;                     // [d_mlp x d_e]
  Vector<T> b_g;                     // [d_mlp]
  std::vector<Matrix<T>> W_further;  // [d_mlp x d_mlp] each
  std::vector<Vector<T>> b_further;  // [d_mlp]
  Vector<T> alpha;                   // xIELU's alpha_p and alpha_n
  Vector<T> mu_k, mu_r;              // [d_e], of a channel mix
  Matrix<T> W_r;                     // [d_e x d_e]

  VariedPerceptron() = default;
  VariedPerceptron(const VariedHyperparameters& h, Index d_mlp, bool bias)
      : mlp(h.d_e, d_mlp),
        W_g(matrix_if<T>(h.gated, d_mlp, h.d_e)),
        b_g(vector_if<T>(h.gated && bias, d_mlp)),
        W_further(static_cast<std::size_t>(h.further_layers), matrix_if<T>(true, d_mlp, d_mlp)),
        b_further(static_cast<std::size_t>(h.further_layers), vector_if<T>(bias, d_mlp)) {
    if (!bias) mlp.b_mlp1 = mlp.b_mlp2 = Vector<T>();
    alpha = vector_if<T>(h.xIELU, 2);
    mu_k = vector_if<T>(h.channel_mix != ChannelMix::none, h.d_e);
    mu_r = vector_if<T>(h.channel_mix == ChannelMix::RWKV_4, h.d_e);
    W_r = matrix_if<T>(h.channel_mix == ChannelMix::RWKV_4, h.d_e, h.d_e);
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    MLPParameters<T>::visit(prefix, "1", "2", f, p.mlp...);
    visit_parameter(prefix + "W_g", f, p.W_g...);
    visit_parameter(prefix + "b_g", f, p.b_g...);
    visit_parameter(prefix + "alpha", f, p.alpha...);
    visit_parameter(prefix + "mu_k", f, p.mu_k...);
    visit_parameter(prefix + "mu_r", f, p.mu_r...);
    visit_parameter(prefix + "W_receptance", f, p.W_r...);
    const std::size_t further = std::get<0>(std::tie(p...)).W_further.size();
    for (std::size_t i = 0; i < further; ++i) {
      visit_parameter(prefix + "W_further", f, p.W_further[i]...);
      visit_parameter(prefix + "b_further", f, p.b_further[i]...);
    }
  }
};

// gamma [d], beta [d], each empty if this kind of norm has none; ScaleNorm's gamma is [1].
template <typename T>
NormalizationParameters<T> varied_norm(NormKind kind, Index d) {
  NormalizationParameters<T> n;
  n.gamma = vector_if<T>(kind != NormKind::layer_plain && kind != NormKind::capsule,
                         kind == NormKind::ScaleNorm ? 1 : d);
  n.beta = vector_if<T>(kind == NormKind::layer_norm || kind == NormKind::layer_plus_one, d);
  return n;
}

// W of Algorithm 5 with variations.
template <typename T>
struct VariedAttention {
  MHAttentionParameters<T> W;
  MHAttentionParameters<T> W_global;           // for tokens that see all; without W_o and b_o
  Vector<T> gamma_q, gamma_k, beta_q, beta_k;  // for the norms of queries and keys
  Vector<T> sink;                              // [H]
  Matrix<T> W_gate;                            // [H d_mid x d_x]
  Vector<T> b_gate;                            // [H d_mid]
  Matrix<T> A;                 // Shaw's, [d_attn x columns_of_A()]: one column for each distance
  Matrix<T> W_d, W_dk, W_dq;   // [H d_attn x d_e]
  Vector<T> u, v, b_dk, b_dq;  // [H d_attn]
  Vector<T> s;                 // [H d_attn]
  Matrix<T> G;          // [H d_attn x 2]: a column for keys of the query's text, one for keys of another
  Matrix<T> W_c, W_cq;  // projections to latents: [d_latent + d_rot x d_e], [d_query_latent x d_e]
  Vector<T> b_c, b_cq, gamma_c, gamma_cq;

  std::vector<Matrix<double>> R;  // rotations of each head (formal/hashing.h), which do not learn

  VariedAttention() = default;
  // Queries are projections of d_x entries, keys and values of d_z.
  VariedAttention(const VariedHyperparameters& h, Index d_x, Index d_z, bool shared_query_key)
      : W(h.H, h.d_attn, h.d_mid, h.d_query_latent > 0 ? h.d_query_latent : d_x,
          h.d_latent > 0 ? h.d_latent : d_z, d_x) {
    if (shared_query_key) R = h.hashing.R;
    if (!h.head_sizes.empty()) {
      for (Index i = 0; i < h.H; ++i)
        W.head[static_cast<std::size_t>(i)] = AttentionParameters<T>(h.size(i), h.size(i), d_x, d_z);
      W.W_o = matrix_if<T>(true, d_x, h.first_row(h.H));
    }
    const bool latent = h.d_latent > 0, of_queries = h.d_query_latent > 0;
    W_c = matrix_if<T>(latent, h.d_latent + h.d_rot, d_x);
    b_c = vector_if<T>(latent && h.qkv_bias, h.d_latent + h.d_rot);
    gamma_c = vector_if<T>(latent, h.d_latent);
    W_cq = matrix_if<T>(of_queries, h.d_query_latent, d_x);
    b_cq = vector_if<T>(of_queries && h.qkv_bias, h.d_query_latent);
    gamma_cq = vector_if<T>(of_queries, h.d_query_latent);
    for (AttentionParameters<T>& head : W.head) {
      if (latent) head.W_k = matrix_if<T>(true, h.d_attn - h.d_rot, h.d_latent);
      if (shared_query_key) head.W_k = Matrix<T>(), head.b_k = Vector<T>();
      if (!h.qkv_bias || latent) head.b_q = head.b_k = head.b_v = Vector<T>();
      if (!h.key_bias) head.b_k = Vector<T>();
      if (h.values_of_keys || h.keys_of_kind >= 0) head.W_v = Matrix<T>(), head.b_v = Vector<T>();
      if (h.keys_of_kind >= 0) head.W_k = Matrix<T>(), head.b_k = Vector<T>();
    }
    if (!h.out_bias) W.b_o = Vector<T>();
    if (h.global_projections) W_global.head = W.head;
    sink = vector_if<T>(h.sinks, h.H);
    W_gate = matrix_if<T>(h.gated_heads, h.H * h.d_mid, d_x);
    b_gate = vector_if<T>(h.gated_heads && h.qkv_bias, h.H * h.d_mid);
    relative(h);
    norms(h);
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    MHAttentionParameters<T>::visit(prefix, f, p.W...);
    MHAttentionParameters<T>::visit(prefix + "global.", f, p.W_global...);
    visit_parameter(prefix + "gamma_q", f, p.gamma_q...);
    visit_parameter(prefix + "gamma_k", f, p.gamma_k...);
    visit_parameter(prefix + "beta_q", f, p.beta_q...);
    visit_parameter(prefix + "beta_k", f, p.beta_k...);
    visit_parameter(prefix + "sink", f, p.sink...);
    visit_parameter(prefix + "W_gate", f, p.W_gate...);
    visit_parameter(prefix + "b_gate", f, p.b_gate...);
    visit_parameter(prefix + "A", f, p.A...);
    visit_parameter(prefix + "W_d", f, p.W_d...);
    visit_parameter(prefix + "W_dk", f, p.W_dk...);
    visit_parameter(prefix + "W_dq", f, p.W_dq...);
    visit_parameter(prefix + "u", f, p.u...);
    visit_parameter(prefix + "v", f, p.v...);
    visit_parameter(prefix + "b_dk", f, p.b_dk...);
    visit_parameter(prefix + "b_dq", f, p.b_dq...);
    visit_parameter(prefix + "s", f, p.s...);
    visit_parameter(prefix + "G", f, p.G...);
    visit_parameter(prefix + "W_c", f, p.W_c...);
    visit_parameter(prefix + "b_c", f, p.b_c...);
    visit_parameter(prefix + "gamma_c", f, p.gamma_c...);
    visit_parameter(prefix + "W_cq", f, p.W_cq...);
    visit_parameter(prefix + "b_cq", f, p.b_cq...);
    visit_parameter(prefix + "gamma_cq", f, p.gamma_cq...);
  }

 private:
  void relative(const VariedHyperparameters& h) {
    const Index all = h.H * h.d_attn;
    A = matrix_if<T>(h.relative == RelativeAttention::Shaw || h.relative == RelativeAttention::Shaw_both,
                     h.d_attn, h.columns_of_A());
    const bool xl = h.relative == RelativeAttention::Transformer_XL;
    W_d = matrix_if<T>(xl, all, h.d_e);
    u = v = vector_if<T>(xl, all);
    s = vector_if<T>(h.by_text, all);
    G = matrix_if<T>(h.by_text, all, 2);
    const bool own = h.relative == RelativeAttention::disentangled && !h.shared_projections;
    W_dk = matrix_if<T>(own && h.by_content, all, h.d_e);
    W_dq = matrix_if<T>(own && h.by_position, all, h.d_e);
    b_dk = vector_if<T>(own && h.by_content && h.qkv_bias && h.key_bias, all);
    b_dq = vector_if<T>(own && h.by_position && h.qkv_bias, all);
  }
  void norms(const VariedHyperparameters& h) {
    const bool there =
                   h.query_key_norm != QueryKeyNorm::none && h.query_key_norm != QueryKeyNorm::unit_rotated,
               of_all =
                   h.query_key_norm == QueryKeyNorm::whole || h.query_key_norm == QueryKeyNorm::layer_heads;
    gamma_q = vector_if<T>(there, h.d_attn * (of_all ? h.H : 1));
    gamma_k = vector_if<T>(there, h.d_attn * (of_all ? h.H_kv : 1));
    if (h.query_key_norm == QueryKeyNorm::layer) beta_q = beta_k = gamma_q;
    if (h.keys_of_kind >= 0) gamma_k = beta_k = Vector<T>();
  }
};

// The parameters of a mixer other than attention.
template <typename T>
struct VariedMixer {
  RecurrenceParameters<T> forward, backward;
  Matrix<T> W_q, W_k, W_v, W_o;  // [d_e x d_e]
  Vector<T> b_q, b_k, b_v, b_o;
  Matrix<T> W_beta;  // [H_fast x d_e]
  Vector<T> b_beta;
  // For states behind convolutions: W_in of all that is made of X, the convolution, steps and decay, norms.
  Matrix<T> W_in, W_conv, W_select, W_step, A_log;
  Vector<T> b_in, b_conv, dt, D, gamma, gamma_step, gamma_B, gamma_C;
  // RWKV: mixes of a column and the one before it; W_q of receptances; log rates and u. RWKV-7: pairs of
  // maps for decays w, rates a, values v and gates g.
  Vector<T> mu_r, mu_w, mu_k, mu_v, mu_a, mu_g, log_rate, u;
  Matrix<T> W_w1, W_w2, W_a1, W_a2, W_v1, W_v2, W_g1, W_g2;
  Vector<T> b_w, b_a, b_v2, key_scale, key_rate, gamma_y, beta_y;
  Matrix<double> vectors;  // drawn for random features, not learned
  Vector<T> sigma;         // factors of unit rows
  Matrix<T> w, w_s;        // AFT: weights of positions, or [l_max x rank] whose product w w_s^T they are

  VariedMixer() = default;
  VariedMixer(const VariedHyperparameters& h, bool first_layer) {
    if (h.mixer == Mixer::attention) return;
    if (h.mixer == Mixer::RWKV_4 || h.mixer == Mixer::RWKV_7) {
      RWKV(h, first_layer);
      return;
    }
    if (h.mixer == Mixer::average) {
      W_v = W_o = matrix_if<T>(true, h.d_e, h.d_e);
      b_v = b_o = vector_if<T>(true, h.d_e);
      return;
    }
    if (h.mixer == Mixer::random_features) {
      W_q = W_k = W_v = W_o = matrix_if<T>(true, h.d_e, h.d_e);
      b_q = b_k = b_v = b_o = vector_if<T>(true, h.d_e);
      vectors = h.state.vectors;
      W_beta = matrix_if<T>(h.state.gated, h.state.heads, h.d_e);
      b_beta = vector_if<T>(h.state.gated, h.state.heads);
      sigma = vector_if<T>(h.state.unit, h.d_e);
      return;
    }
    if (h.mixer == Mixer::AFT) {
      W_q = W_k = W_v = W_o = matrix_if<T>(true, h.d_e, h.d_e);
      b_q = b_k = b_v = b_o = vector_if<T>(true, h.d_e);
      const StateShape& s = h.state;
      const bool pairs = s.aft == AFT::full || s.aft == AFT::local, conv = s.aft == AFT::conv;
      const Index distances = h.bidirectional ? 2 * s.window - 1 : s.window;
      w = matrix_if<T>(pairs || conv, conv ? s.heads : h.l_max,
                       conv             ? distances
                       : s.aft_rank > 0 ? s.aft_rank
                                        : h.l_max);
      w_s = matrix_if<T>(pairs && s.aft_rank > 0, h.l_max, s.aft_rank);
      return;
    }
    if (h.mixer == Mixer::linear_attention || h.mixer == Mixer::delta_rule) {
      W_q = W_k = W_v = W_o = matrix_if<T>(true, h.d_e, h.d_e);
      b_q = b_k = b_v = b_o = vector_if<T>(true, h.d_e);
      W_beta = matrix_if<T>(h.mixer == Mixer::delta_rule, h.H_fast, h.d_e);
      b_beta = vector_if<T>(h.mixer == Mixer::delta_rule, h.H_fast);
      return;
    }
    if (h.mixer >= Mixer::gated_delta) {
      const StateShape& s = h.state;
      const bool delta = h.mixer == Mixer::gated_delta, one = h.mixer == Mixer::Mamba,
                 two = h.mixer == Mixer::Mamba_2, alone = h.mixer == Mixer::convolution;
      const Index keys = s.key_heads * s.d_k, values = alone ? h.d_e : s.heads * s.d_v,
                  mixed = one || alone ? values : 2 * keys + values,
                  all = alone ? 3 * values
                              : mixed + values +
                                    (delta ? 2
                                     : two ? 1
                                           : 0) *
                                        s.heads;
      W_in = matrix_if<T>(true, all, h.d_e);
      b_in = vector_if<T>(s.bias, all);
      W_conv = matrix_if<T>(true, mixed, s.K);
      b_conv = vector_if<T>(s.convolution_bias, mixed);
      W_select = matrix_if<T>(one, s.rank + 2 * s.d_k, values);
      W_step = matrix_if<T>(one, values, s.rank);
      dt = vector_if<T>(!alone, one ? values : s.heads);
      A_log = matrix_if<T>(!alone, one ? values : s.heads, one ? s.d_k : 1);
      D = vector_if<T>(one || two, one ? values : s.heads);
      gamma = vector_if<T>(delta || two, delta ? s.d_v : values);
      gamma_step = vector_if<T>(one && s.norms, s.rank);
      gamma_B = gamma_C = vector_if<T>(one && s.norms, s.d_k);
      W_o = matrix_if<T>(true, h.d_e, values);
      b_o = vector_if<T>(s.bias, h.d_e);
      return;
    }
    const Index gates = h.mixer == Mixer::LSTM ? 4 : 3, d = h.bidirectional ? h.d_e / 2 : h.d_e;
    forward = {matrix_if<T>(true, gates * d, h.d_e), matrix_if<T>(true, gates * d, d),
               vector_if<T>(true, gates * d)};
    if (h.bidirectional) backward = forward;
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W", f, p.forward.W...);
    visit_parameter(prefix + "U", f, p.forward.U...);
    visit_parameter(prefix + "b", f, p.forward.b...);
    visit_parameter(prefix + "W_back", f, p.backward.W...);
    visit_parameter(prefix + "U_back", f, p.backward.U...);
    visit_parameter(prefix + "b_back", f, p.backward.b...);
    visit_parameter(prefix + "W_q", f, p.W_q...);
    visit_parameter(prefix + "b_q", f, p.b_q...);
    visit_parameter(prefix + "W_k", f, p.W_k...);
    visit_parameter(prefix + "b_k", f, p.b_k...);
    visit_parameter(prefix + "W_v", f, p.W_v...);
    visit_parameter(prefix + "b_v", f, p.b_v...);
    visit_parameter(prefix + "W_beta", f, p.W_beta...);
    visit_parameter(prefix + "sigma", f, p.sigma...);
    visit_parameter(prefix + "b_beta", f, p.b_beta...);
    visit_parameter(prefix + "W_in", f, p.W_in...);
    visit_parameter(prefix + "b_in", f, p.b_in...);
    visit_parameter(prefix + "W_conv", f, p.W_conv...);
    visit_parameter(prefix + "b_conv", f, p.b_conv...);
    visit_parameter(prefix + "W_select", f, p.W_select...);
    visit_parameter(prefix + "W_step", f, p.W_step...);
    visit_parameter(prefix + "dt", f, p.dt...);
    visit_parameter(prefix + "A_log", f, p.A_log...);
    visit_parameter(prefix + "D", f, p.D...);
    visit_parameter(prefix + "gamma", f, p.gamma...);
    visit_parameter(prefix + "gamma_step", f, p.gamma_step...);
    visit_parameter(prefix + "gamma_B", f, p.gamma_B...);
    visit_parameter(prefix + "gamma_C", f, p.gamma_C...);
    visit_parameter(prefix + "mu_r", f, p.mu_r...);
    visit_parameter(prefix + "mu_w", f, p.mu_w...);
    visit_parameter(prefix + "mu_k", f, p.mu_k...);
    visit_parameter(prefix + "mu_v", f, p.mu_v...);
    visit_parameter(prefix + "mu_a", f, p.mu_a...);
    visit_parameter(prefix + "mu_g", f, p.mu_g...);
    visit_parameter(prefix + "log_rate", f, p.log_rate...);
    visit_parameter(prefix + "u", f, p.u...);
    visit_parameter(prefix + "W_w1", f, p.W_w1...);
    visit_parameter(prefix + "W_w2", f, p.W_w2...);
    visit_parameter(prefix + "b_w", f, p.b_w...);
    visit_parameter(prefix + "W_a1", f, p.W_a1...);
    visit_parameter(prefix + "W_a2", f, p.W_a2...);
    visit_parameter(prefix + "b_a", f, p.b_a...);
    visit_parameter(prefix + "W_v1", f, p.W_v1...);
    visit_parameter(prefix + "W_v2", f, p.W_v2...);
    visit_parameter(prefix + "b_v2", f, p.b_v2...);
    visit_parameter(prefix + "W_g1", f, p.W_g1...);
    visit_parameter(prefix + "W_g2", f, p.W_g2...);
    visit_parameter(prefix + "key_scale", f, p.key_scale...);
    visit_parameter(prefix + "key_rate", f, p.key_rate...);
    visit_parameter(prefix + "gamma_y", f, p.gamma_y...);
    visit_parameter(prefix + "beta_y", f, p.beta_y...);
    visit_parameter(prefix + "w", f, p.w...);
    visit_parameter(prefix + "w_s", f, p.w_s...);
    visit_parameter(prefix + "W_o", f, p.W_o...);
    visit_parameter(prefix + "b_o", f, p.b_o...);
  }

 private:
  void RWKV(const VariedHyperparameters& h, bool first_layer) {
    const bool seven = h.mixer == Mixer::RWKV_7;
    const StateShape& s = h.state;
    const Index d = h.d_e, inner = seven ? d : s.d_v;
    W_q = W_k = W_v = matrix_if<T>(true, inner, d);
    W_o = matrix_if<T>(true, d, inner);
    mu_r = mu_k = mu_v = vector_if<T>(true, d);
    u = vector_if<T>(true, inner);
    log_rate = vector_if<T>(!seven, inner);
    if (!seven) return;
    mu_w = mu_a = mu_g = b_w = b_a = key_scale = key_rate = gamma_y = beta_y = vector_if<T>(true, d);
    const auto pair = [d](Matrix<T>& first, Matrix<T>& second, Index rank) {
      first = matrix_if<T>(true, rank, d);
      second = matrix_if<T>(true, d, rank);
    };
    pair(W_w1, W_w2, s.rank);
    pair(W_a1, W_a2, s.rate_rank);
    pair(W_g1, W_g2, s.gate_rank);
    if (first_layer) return;
    pair(W_v1, W_v2, s.value_rank);
    b_v2 = vector_if<T>(true, d);
  }
};

// The norms of one branch: `inner` normalises its input or the sum, `outer` (norm') its output.
template <typename T>
struct BranchNorms {
  NormalizationParameters<T> inner, outer;
  bool reads_norm = true;  // false: there is no inner norm

  BranchNorms() = default;
  explicit BranchNorms(const VariedHyperparameters& h) {
    if (h.placement != NormPlacement::branch && h.placement != NormPlacement::none)
      inner = varied_norm<T>(h.norm_kind, h.d_e);
    if (h.placement == NormPlacement::branch || h.placement == NormPlacement::sandwich)
      outer = varied_norm<T>(h.norm_kind, h.d_e);
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    NormalizationParameters<T>::visit(prefix, "", f, p.inner...);
    NormalizationParameters<T>::visit(prefix, "_branch", f, p.outer...);
  }
};

// A layer with variations.
template <typename T>
struct VariedLayer {
  VariedAttention<T> W;  // self-attention, or:
  Matrix<T> B;           // [rows_of_B() x H], where layers have biases of their own
  VariedMixer<T> mixer;
  VariedAttention<T> W_ed;  // cross-attention, W^{e/d}
  BranchNorms<T> norm, norm_ed, norm_mlp;
  VariedPerceptron<T> mlp;                  // or:
  Matrix<T> W_r;                            // [E x d_e], the router
  Vector<T> b_r;                            // [E]
  std::vector<VariedPerceptron<T>> expert;  // E
  VariedPerceptron<T> shared;
  Matrix<T> w_shared;       // [1 x d_e]
  Matrix<T> W_gate, W_out;  // [d_layer x d_e], [d_e x d_layer], of the layer's own input
  NormalizationParameters<T> norm_layer;

  VariedLayer() = default;
  // Layer l, from 0.
  VariedLayer(const VariedHyperparameters& h, std::size_t l) : mixer(h, l == 0), norm(h), norm_mlp(h) {
    if (h.mixer == Mixer::attention) W = VariedAttention<T>(h, h.d_e, h.d_e, h.shares(l));
    if (h.branches == Branches::one_norm) norm_mlp = BranchNorms<T>();
    if (!h.mixer_norm) norm.inner = {}, norm.reads_norm = false;
    B = matrix_if<T>(h.biases_by_layer, h.rows_of_B(), h.H);
    if (h.d_layer > 0) {
      W_gate = matrix_if<T>(true, h.d_layer, h.d_e);
      W_out = matrix_if<T>(true, h.d_e, h.d_layer);
      norm_layer = varied_norm<T>(h.norm_kind, h.d_e);
    }
    if (h.d_z > 0) {
      W_ed = VariedAttention<T>(h.of_cross_attention(), h.d_e, h.d_z, false);
      norm_ed = BranchNorms<T>(h);
    }
    if (!h.has_experts(l)) {
      mlp = VariedPerceptron<T>(h, h.d_mlp, h.mlp_bias);
      return;
    }
    W_r = matrix_if<T>(true, h.E, h.d_e);
    b_r = vector_if<T>(h.router_bias, h.E);
    expert.assign(static_cast<std::size_t>(h.E), VariedPerceptron<T>(h, h.d_expert, h.expert_bias));
    if (h.d_shared > 0) shared = VariedPerceptron<T>(h, h.d_shared, h.mlp_bias);
    w_shared = matrix_if<T>(h.shared_gated, 1, h.d_e);
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    VariedAttention<T>::visit(prefix + "W.", f, p.W...);
    visit_parameter(prefix + "B", f, p.B...);
    VariedMixer<T>::visit(prefix + "mixer.", f, p.mixer...);
    VariedAttention<T>::visit(prefix + "W_ed.", f, p.W_ed...);
    BranchNorms<T>::visit(prefix + "norm.", f, p.norm...);
    BranchNorms<T>::visit(prefix + "norm_ed.", f, p.norm_ed...);
    BranchNorms<T>::visit(prefix + "norm_mlp.", f, p.norm_mlp...);
    VariedPerceptron<T>::visit(prefix, f, p.mlp...);
    visit_parameter(prefix + "W_r", f, p.W_r...);
    visit_parameter(prefix + "b_r", f, p.b_r...);
    visit_each(prefix + "expert", f, p.expert...);
    VariedPerceptron<T>::visit(prefix + "shared.", f, p.shared...);
    visit_parameter(prefix + "w_shared", f, p.w_shared...);
    visit_parameter(prefix + "W_gate", f, p.W_gate...);
    visit_parameter(prefix + "W_out", f, p.W_out...);
    NormalizationParameters<T>::visit(prefix, "_layer", f, p.norm_layer...);
  }
};

// Tables that give the layers of one kind their distances.
template <typename T>
struct DistanceTables {
  Matrix<T> B;  // [rows_of_B() x H]
  Matrix<T> P;  // for disentangled attention: [d_e x 2 l_rel], or [d_e x 2 buckets]
  NormalizationParameters<T> norm_P;

  DistanceTables() = default;
  explicit DistanceTables(const VariedHyperparameters& h)
      : B(matrix_if<T>(h.distances > 0 && !h.biases_by_layer, h.rows_of_B(), h.H)) {
    if (h.relative != RelativeAttention::disentangled) return;
    P = matrix_if<T>(true, h.d_e, 2 * (h.buckets > 0 ? h.buckets : h.l_rel));
    if (h.normed_distances) norm_P = varied_norm<T>(h.norm_kind, h.d_e);
  }

  template <typename F, typename... Q>
  static void visit(const std::string& prefix, const F& f, Q&... p) {
    visit_parameter(prefix + "B", f, p.B...);
    visit_parameter(prefix + "P", f, p.P...);
    NormalizationParameters<T>::visit(prefix, "_P", f, p.norm_P...);
  }
};

// A stack of layers.
template <typename T>
struct VariedStack {
  std::vector<VariedLayer<T>> layer;         // one for each group
  std::vector<DistanceTables<T>> distances;  // one for each kind of layer
  NormalizationParameters<T> norm;           // after the last layer

  VariedStack() = default;
  explicit VariedStack(const VariedHyperparameters& h) {
    for (Index g = 0; g < h.groups; ++g) {
      const auto l = static_cast<std::size_t>((g * h.L + h.groups - 1) / h.groups);  // its first
      layer.push_back(VariedLayer<T>(h.of_layer(l), l));
    }
    distances.push_back(DistanceTables<T>(h));
    for (const VariedHyperparameters& kind : h.kinds) distances.push_back(DistanceTables<T>(kind));
    if (h.ends_with_norm()) norm = varied_norm<T>(h.norm_kind, h.d_out());
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_each(prefix + "layer", f, p.layer...);
    visit_each(prefix + "distances", f, p.distances...);
    NormalizationParameters<T>::visit(prefix, "", f, p.norm...);
  }
};

// Parameters of the terms that are added to W_e's columns, and of the sum's norm and projection.
template <typename T>
struct VariedEmbedding {
  Matrix<T> W_p;       // [d x l_max], d = d_sum(); in a grid, one column for each row
  Matrix<T> W_column;  // [d x grid], for a grid's columns; d is less in both tables if positions are axial
  Matrix<T> W_text;    // [d x texts]
  NormalizationParameters<T> norm;
  Matrix<T> W_in;  // [d_e x d_embedding]
  Vector<T> b_in;  // [d_e]
  // For the layers' own inputs: [L d_layer x N_V], [L d_layer x d_e], [d_layer].
  Matrix<T> W_layers, W_project;
  Vector<T> gamma_project;

  VariedEmbedding() = default;
  explicit VariedEmbedding(const VariedHyperparameters& h) {
    const bool learned = h.position_vectors == PositionVectors::learned;
    W_p = matrix_if<T>(learned, h.d_axial > 0 ? h.d_axial : h.d_sum(),
                       h.grid > 0 ? (h.l_max + h.grid - 1) / h.grid : h.l_max);
    W_column = matrix_if<T>(learned && h.grid > 0, h.d_sum() - h.d_axial, h.grid);
    W_text = matrix_if<T>(h.texts > 0, h.d_sum(), h.texts);
    if (h.embedding_norm) norm = varied_norm<T>(h.norm_kind, h.d_sum());
    W_in = matrix_if<T>(h.d_embedding > 0, h.d_e, h.d_embedding);
    b_in = vector_if<T>(h.projected_last, h.d_e);
    W_layers = matrix_if<T>(h.d_layer > 0, h.L * h.d_layer, h.N_V);
    W_project = matrix_if<T>(h.d_layer > 0, h.L * h.d_layer, h.d_e);
    gamma_project = vector_if<T>(h.d_layer > 0, h.d_layer);
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_p", f, p.W_p...);
    visit_parameter(prefix + "W_column", f, p.W_column...);
    visit_parameter(prefix + "W_text", f, p.W_text...);
    NormalizationParameters<T>::visit(prefix, "_in", f, p.norm...);
    visit_parameter(prefix + "W_in", f, p.W_in...);
    visit_parameter(prefix + "b_in", f, p.b_in...);
    visit_parameter(prefix + "W_layers", f, p.W_layers...);
    visit_parameter(prefix + "W_project", f, p.W_project...);
    visit_parameter(prefix + "gamma_project", f, p.gamma_project...);
  }
};

// From what leaves a stack to logits.
template <typename T>
struct VariedUnembedding {
  Matrix<T> W_f;  // [d_f x d], lines 10 and 11 of Algorithm 9; d = d_out()
  Vector<T> b_f;
  NormalizationParameters<T> norm;
  Matrix<T> W_out;  // [d_embedding x d], where embeddings have other entries than X
  Matrix<T> W_u;    // [N_V x d_f, d_embedding or d]; nothing where it is W_e^T
  Vector<T> b_u;    // [N_V]

  VariedUnembedding() = default;
  explicit VariedUnembedding(const VariedHyperparameters& h) {
    W_f = matrix_if<T>(h.head, h.d_f, h.d_out());
    b_f = vector_if<T>(h.head && h.head_bias, h.d_f);
    if (h.head) norm = varied_norm<T>(h.norm_kind, h.d_f);
    W_out = matrix_if<T>(!h.head && h.d_embedding > 0, h.d_embedding, h.d_out());
    W_u = matrix_if<T>(!h.tied, h.N_V, h.head ? h.d_f : h.d_embedding > 0 ? h.d_embedding : h.d_out());
    b_u = vector_if<T>(h.unembedding_bias, h.N_V);
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_f", f, p.W_f...);
    visit_parameter(prefix + "b_f", f, p.b_f...);
    NormalizationParameters<T>::visit(prefix, "_f", f, p.norm...);
    visit_parameter(prefix + "W_out", f, p.W_out...);
    visit_parameter(prefix + "W_u", f, p.W_u...);
    visit_parameter(prefix + "b_u", f, p.b_u...);
  }
};

// theta of Algorithm 9 or 10 with variations.
template <typename T>
struct VariedTheta {
  VariedHyperparameters hyper;
  Matrix<T> W_e;  // [d_token() x N_V]
  VariedEmbedding<T> embedding;
  VariedStack<T> stack;
  VariedUnembedding<T> unembedding;

  explicit VariedTheta(const VariedHyperparameters& h)
      : hyper(h), W_e(matrix_if<T>(true, h.d_token(), h.N_V)), embedding(h), stack(h), unembedding(h) {}

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_e", f, p.W_e...);
    VariedEmbedding<T>::visit(prefix, f, p.embedding...);
    VariedStack<T>::visit(prefix, f, p.stack...);
    VariedUnembedding<T>::visit(prefix, f, p.unembedding...);
  }
};

// Hyperparameters of Algorithm 8 and its variations. REQUIRES: decoder.d_z = encoder.d_e.
struct VariedEDHyperparameters {
  VariedHyperparameters encoder, decoder;
  bool own_tokens = false;     // the encoder has a W_e of its own; else both have one
  bool own_embedding = false;  // and the rest of its embedding
  bool reversed = false;       // it reads z from its end (Sutskever et al. 2014)
};

// theta of Algorithm 8 with variations.
template <typename T>
struct VariedEDTheta {
  VariedEDHyperparameters hyper;
  Matrix<T> W_e, W_e_encoder;
  VariedEmbedding<T> embedding, embedding_encoder;
  VariedStack<T> encoder, decoder;
  VariedUnembedding<T> unembedding;

  explicit VariedEDTheta(const VariedEDHyperparameters& h)
      : hyper(h),
        W_e(matrix_if<T>(true, h.decoder.d_token(), h.decoder.N_V)),
        W_e_encoder(matrix_if<T>(h.own_tokens, h.encoder.d_token(), h.encoder.N_V)),
        embedding(h.decoder),
        encoder(h.encoder),
        decoder(h.decoder),
        unembedding(h.decoder) {
    if (h.own_embedding) embedding_encoder = VariedEmbedding<T>(h.encoder);
  }

  template <typename F, typename... P>
  static void visit(const std::string& prefix, const F& f, P&... p) {
    visit_parameter(prefix + "W_e", f, p.W_e...);
    visit_parameter(prefix + "encoder.W_e", f, p.W_e_encoder...);
    VariedEmbedding<T>::visit(prefix, f, p.embedding...);
    VariedEmbedding<T>::visit(prefix + "encoder.", f, p.embedding_encoder...);
    VariedStack<T>::visit(prefix + "encoder.", f, p.encoder...);
    VariedStack<T>::visit(prefix + "decoder.", f, p.decoder...);
    VariedUnembedding<T>::visit(prefix, f, p.unembedding...);
  }
};

}  // namespace qkv::formal

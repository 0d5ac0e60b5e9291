#pragma once

// The choices that later papers add to Algorithms 8 to 10, for the model and for each layer.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include "formal/attention_free.h"
#include "formal/fast_weights.h"
#include "formal/hashing.h"
#include "formal/random_features.h"
#include "formal/theta.h"

namespace qkv::formal {

// Kinds of norms. layer_scale and layer_plain: layer_norm without beta, and without both parameters.
// plus_one: RMSnorm with 1 + gamma for gamma (Gemma). ScaleNorm: one gamma for all (Nguyen & Salazar 2019);
// capsule: the squash function (Sabour et al. 2017).
enum class NormKind {
  layer_norm,
  layer_scale,
  layer_plain,
  RMSnorm,
  plus_one,
  ScaleNorm,
  capsule,
  layer_plus_one
};
// The norms of a branch f of a block: x + f(norm(x)), norm(x + f(x)), x + norm'(f(norm(x))),
// x + norm'(f(x)), x + f(x), norm(x) + f(norm(x)).
enum class NormPlacement { pre, post, sandwich, branch, none, stream };
// Attention and the perceptron read: one the other's output, the same X, the same normalised X, or two
// streams: X_1 + f(X_2), then X_2 + g(that) (Gomez et al. 2017, eq. 8; Kitaev et al. 2020).
enum class Branches { serial, parallel, one_norm, reversible };
// heads, whole: RMSnorm; layer, layer_heads: layer_norm of each head, by the same or by its own weights.
// heads_plus_one: 1 + gamma for gamma (Gemma 3); heads_rotated: after they are turned (Hunyuan);
// unit_rotated: and without gamma (Llama 4).
enum class QueryKeyNorm {
  none,
  heads,
  whole,
  layer,
  layer_heads,
  heads_plus_one,
  heads_rotated,
  unit_rotated
};

// The vectors e_p that are added to the embeddings: none, columns of W_p, or sines and cosines: those of
// Vaswani et al. 2017; of section 5; all sines before all cosines (Marian); or the same with the last
// wavelength exactly 10000 2 pi and positions from first_position on (tensor2tensor).
enum class PositionVectors { none, learned, sinusoidal, section_5, halves, closed, Fourier };
// ALiBi: scores fall with the distance by a slope of each head; scaled: the slope is scaled as scores are
// (Falcon); by_sign: in an encoder scores of keys after the query rise with it.
enum class Alibi { none, by_powers, evens_first, scaled, by_sign };
// Vectors that make scores depend on distances (Shaw et al. 2018; Huang et al. 2020; Dai et al. 2019; He et
// al. 2021).
enum class RelativeAttention { none, Shaw, Shaw_both, Transformer_XL, disentangled };

// Mixers combine tokens: self-attention, a recurrence, the mean of the tokens so far, fast weights, states
// behind a short convolution, a convolution alone, RWKV's time mixing, attention by random features, or the
// attention-free transformer's.
enum class Mixer {
  attention,
  LSTM,
  GRU,
  average,
  linear_attention,
  delta_rule,
  gated_delta,
  Mamba,
  Mamba_2,
  convolution,
  RWKV_4,
  RWKV_7,
  random_features,
  AFT
};
// Perceptrons that also read the column before: RWKV's channel mixing.
enum class ChannelMix { none, RWKV_4, RWKV_7 };

// The shape of the mixers from gated_delta on.
struct StateShape {
  Index K = 4;                     // tokens of the convolution
  Index heads = 1, key_heads = 1;  // Mamba: 1; Mamba-2: key_heads pairs of B and C
  Index d_k = 1, d_v = 1;  // rows of a key or of a channel's state; of a value or the channels of a head
  Index rank = 1;          // Mamba: of what steps are made of; RWKV-7: of what decays are made of
  Index rate_rank = 1, value_rank = 1, gate_rank = 1;  // RWKV-7
  bool bias = false, convolution_bias = false, norms = false;
  RandomMap map = RandomMap::positive;  // random features: their map, vectors [D x d_e / heads], and gates
  Matrix<double> vectors;
  bool gated = false, unit = false;     // unit: rows of length 1, as published
  double epsilon = 0;                   // above 0: added to features
  formal::AFT aft = formal::AFT::full;  // AFT: its form, window and heads, and the rank of its weights
  Index window = 1, aft_rank = 0;
  double low = 0, high = 0;  // Mamba-2: limits of steps; high 0: none
};

// The tokens that a token sees, among those that the mask of its stack allows: the union of these parts.
// Without any part it sees all.
struct SparsePattern {
  Index window = 0, dilation = 1;  // the nearest this many, at multiples of `dilation` (Longformer)
  Index stride = 0;                // those at multiples of this distance (Sparse Transformer, strided)
  Index global = 0;                // the first this many, which also see all
  Index block = 0;  // its own block, and the last `summary` of each (Sparse Transformer, fixed)
  Index neighbours = 0, summary = 0;
  bool ends = false;  // the first and the last block are seen by all and see all (BigBird)
  // True if block i sees block j (BigBird's random blocks). Both count from 1. `blocks`: their number; 0:
  // more may follow. Empty: no blocks are drawn.
  std::function<bool(Index i, Index j, Index blocks)> drawn = {};
  Index beyond = 0;       // in sequences of at most this many tokens, each token sees all
  Index first_block = 1;  // how often the first block's tokens count for tokens between the end blocks

  bool any() const { return window > 0 || stride > 0 || global > 0 || block > 0; }
  // True if t_x sees t_z; both count from 1. l: number of tokens; 0: more may follow.
  bool sees(Index t_z, Index t_x, Index l) const {
    const Index d = std::abs(t_x - t_z);
    if (!any() || (l > 0 && l <= beyond)) return true;
    if (d % dilation == 0 && d / dilation < window) return true;
    if (stride > 0 && d % stride == 0) return true;
    if (t_z <= global || t_x <= global) return true;
    if (block == 0) return false;
    const Index b_z = block_of(t_z), b_x = block_of(t_x);
    if (std::abs(b_x - b_z) <= neighbours || (t_z - 1) % block >= block - summary) return true;
    if (ends && (is_end(b_z, l) || is_end(b_x, l))) return true;
    return drawn && drawn(b_x, b_z, l > 0 ? block_of(l) : 0);
  }
  // How often t_z counts for t_x.
  Index times(Index t_z, Index t_x, Index l) const {
    const bool all = l > 0 && l <= beyond;
    return !all && first_block > 1 && block_of(t_z) == 1 && !is_end(block_of(t_x), l) ? first_block : 1;
  }

 private:
  Index block_of(Index t) const { return (t - 1) / block + 1; }
  bool is_end(Index b, Index l) const { return b == 1 || (l > 0 && b == block_of(l)); }
};

// Hyperparameters of one stack of layers, its embedding and its unembedding.
struct VariedHyperparameters : Hyperparameters {
  bool bidirectional = false;  // self-attention has the mask of eq. (3), first case, as in an encoder
  Index d_z = 0;               // entries of Z's columns, for cross-attention; 0: there is none

  NormKind norm_kind = NormKind::layer_norm;
  NormPlacement placement = NormPlacement::pre;
  bool mixer_norm = true;  // placement pre: the mixer reads norm(X), else X (ModernBERT's first layer)
  bool final_norm = true;  // X is normalised after the last layer; never with placements post and none
  Branches branches = Branches::serial;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  Index H_kv = 0;                 // number of heads with keys and values of their own; 0: H
  std::vector<Index> head_sizes;  // d_attn and d_mid of each head; empty: those of Hyperparameters
  Index groups =
      0;  // layer l of L has the parameters of group ((l - 1) groups / L), rounded down, + 1 (ALBERT)

  PositionVectors position_vectors = PositionVectors::learned;
  Index first_position = 0;      // position of the first token, for `closed`
  double position_base = 10000;  // N of sinusoids, but of section_5
  Index grid = 0;                // tokens in a row: positions are rows and columns; 0: they are numbers
  Index d_axial = 0;  // entries for the row, above the column's (Ho et al. 2019); 0: the vectors are added
  bool unit_embeddings = false;  // the columns of W_e, and the rows of W_u, have length 1 (FixNorm)
  double embedding_multiplier = 1;
  Index d_embedding = 0;        // entries of W_e's columns, which W_in projects to d_e; 0: d_e
  bool projected_last = false;  // W_in projects the sum, with an offset (ALBERT); else W_e's columns (OPT)
  bool embedding_norm = false;  // the sum of embeddings is normalised (BERT)
  Index texts = 0;    // embeddings also encode which of this many texts a token is of; 0: they do not
  bool head = false;  // lines 10 and 11 of Algorithm 9, with d_f, precede the unembedding
  Activation head_activation = Activation::as_printed;
  bool head_bias = true;  // line 10 has an offset
  bool unembedding_bias = false;
  double logit_multiplier = 1, logit_cap = 0;

  Index d_rot = 0;             // entries of queries and keys that RoPE rotates
  Index d_turned = 0;          // those of the first pairs, if only they turn (Gemma 4); 0: all
  bool turned_values = false;  // values are turned as well (RoFormer)
  bool interleaved = false;    // pairs 2i - 1, 2i instead of i, i + d_rot / 2
  double theta_base = 10000;   // base of RoPE's angles
  Alibi alibi = Alibi::none;
  Index distances = 0;   // each head has this many biases by distance, the last for all beyond; 0: none
  Index T5_buckets = 0;  // or one for each of this many buckets (Raffel et al. 2020); 0: for each distance
  bool biases_by_layer = false;  // each layer has a B of its own (UMT5)
  RelativeAttention relative = RelativeAttention::none;
  Index l_rel = 0;    // tokens farther than this count as this far; 0 (Transformer-XL): no limit
  Index buckets = 0;  // disentangled: large distances share buckets, this many a side; 0: none do
  bool by_content = true, by_position = true, shared_projections = false, normed_distances = false;
  bool by_text = false;  // Transformer-XL: scores also know whether two tokens are of one text (XLNet)
  std::vector<SparsePattern> patterns;  // layer l has the ((l - 1) mod size) + 1-th; empty: all tokens
  bool global_projections = false;      // tokens that see all have a W of their own (Longformer)
  std::vector<bool> shared_query_key;   // by layer: keys are queries of unit mean square (Reformer)
  bool linear = false;                  // the attention that these are of is linear
  bool linear_cross = false;            // cross-attention is linear, of features elu(x) + 1
  Hashing hashing;                      // how these layers hash (formal/hashing.h)
  Hashing ring;                  // chunks of positions that an encoder's other layers see, without buckets
  double score_scale = 0;        // 0: 1 / sqrt(d_attn)
  bool scaled_by_layer = false;  // and 1 / l in layer l
  bool gated = false;            // W_2 (f(W_1 X + b_1) .* (W_g X + b_g)) (Shazeer 2020)
  double gate_limit = 0;        // gated: gates are cut off above it, values at both ends, and gain 1; 0: none
  bool xIELU = false;           // the activation is xIELU, with numbers of the layer
  bool unit_values = false;     // values of a head have unit mean square (Gemma 4)
  bool values_of_keys = false;  // values are the projected keys, before norms and turns (Gemma 4)
  bool gated_heads = false;     // heads' outputs are multiplied by sigma(W_gate X + b_gate) (Qwen3-Next)
  // Keys and values are those of the last layer before of this kind, and of the same pattern; -1: the layer's
  // own (Brandon et al. 2024; Gemma 4).
  Index keys_of_kind = -1;
  bool qkv_bias = true, key_bias = true, out_bias = true, mlp_bias = true;
  double residual_multiplier = 1;
  // Each layer has an input e [d_layer x l] of its own: X + norm'(W_out (f(W_gate X) .* e)) follows the
  // perceptron (Gemma 3n and 4); 0: none.
  Index d_layer = 0;
  std::vector<double> layer_scales;  // by layer: factors on what leaves it; empty: 1 (Gemma 4)
  double clip = 0;                   // entries of q, k and v are clipped to [-clip, clip]; 0: they are not
  // Queries of the token at position t, from 0, are multiplied by 1 + growth ln(1 + floor((t + growth_from) /
  // growth_every)) (Llama 4, Ministral 3).
  double growth = 0;
  Index growth_every = 1, growth_from = 0;
  double score_cap = 0;            // s becomes cap tanh(s / cap); 0: it stays
  bool sinks = false;              // each head has a score that only enters the softmax's denominator
  Index d_latent = 0;              // size of the latent for keys and values (MLA); 0: they are made from X
  Index d_query_latent = 0;        // the same for queries
  Mixer mixer = Mixer::attention;  // takes the place of self-attention
  Index H_fast = 4;                // heads of fast weights
  FeatureMap features = FeatureMap::elu;
  bool normalised = true;  // linear attention divides by the sum of similarities
  StateShape state;
  ChannelMix channel_mix = ChannelMix::none;
  Index further_layers = 0;        // h -> f(W h + b) of the perceptron
  Index E = 0;                     // experts; 0: one perceptron
  Index E_first = 0, E_every = 1;  // layers with experts: every E_every-th from layer E_first on, from 0
  Index k = 1, d_expert = 0;       // each token takes the k best experts, of d_expert hidden units each
  bool sigmoid_affinities = false, renormalized = false;
  double expert_scale = 1;
  bool router_bias = false, expert_bias = false;  // their layers have offsets (gpt-oss)
  bool input_weighted = false;                    // an expert's weight multiplies what it reads (Llama 4)
  Index d_shared = 0;                             // hidden units of a perceptron beside the experts; 0: none
  bool shared_gated = false;                      // its output is multiplied by sigmoid(w . x)

  // Hyperparameters of the layers that differ, and the kind of each layer, in turn: 0 is this struct, i + 1
  // is kinds[i].
  std::vector<VariedHyperparameters> kinds;
  std::vector<Index> kind_of_layer;

  // The kind of layer l, from 0, and what follows from it.
  std::size_t kind(std::size_t l) const {
    return kind_of_layer.empty() ? 0 : static_cast<std::size_t>(kind_of_layer[l % kind_of_layer.size()]);
  }
  const VariedHyperparameters& of_layer(std::size_t l) const {
    return kind(l) == 0 ? *this : kinds[kind(l) - 1];
  }
  bool shares(std::size_t l) const {
    return !shared_query_key.empty() && shared_query_key[l % shared_query_key.size()];
  }
  // The layer whose keys and values layer l, from 0, uses.
  std::size_t keys_of(std::size_t l) const {
    const VariedHyperparameters& its = of_layer(l);
    if (its.keys_of_kind < 0) return l;
    const std::size_t kind_of_keys = static_cast<std::size_t>(its.keys_of_kind),
                      turns = std::max<std::size_t>(1, its.patterns.size());
    std::size_t before = l - 1;
    while (kind(before) != kind_of_keys || before % turns != l % turns) --before;
    return before;
  }
  SparsePattern pattern(std::size_t l) const {
    return patterns.empty() ? SparsePattern() : patterns[l % patterns.size()];
  }
  bool has_experts(std::size_t l) const {
    const Index i = static_cast<Index>(l) - E_first;
    return E > 0 && i >= 0 && i % E_every == 0;
  }
  bool ends_with_norm() const {
    return final_norm && placement != NormPlacement::post && placement != NormPlacement::none;
  }
  // Entries of W_e's columns, and of the sum of embeddings.
  Index d_token() const { return d_embedding > 0 ? d_embedding : d_e; }
  Index d_sum() const { return projected_last ? d_embedding : d_e; }
  // Entries of a column that leaves the last layer.
  Index d_out() const { return branches == Branches::reversible ? 2 * d_e : d_e; }
  // Entries of the queries and keys of head i, from 0, and the first of them among those of all heads.
  Index size(Index i) const { return head_sizes.empty() ? d_attn : head_sizes[static_cast<std::size_t>(i)]; }
  Index first_row(Index i) const { return i == 0 ? 0 : first_row(i - 1) + size(i - 1); }
  // Rows of B and columns of A: one for each distance to a key before the query, in an encoder also behind
  // it.
  Index rows_of_B() const {
    return T5_buckets > 0 ? T5_buckets : bidirectional ? 2 * distances - 1 : distances;
  }
  Index columns_of_A() const { return bidirectional ? 2 * l_rel + 1 : l_rel + 1; }

  // Hyperparameters of cross-attention. Tokens of Z have no distance from X's: only heads, scale, cap,
  // sinks and offsets stay.
  VariedHyperparameters of_cross_attention() const {
    VariedHyperparameters h = *this;
    h.linear = linear_cross;
    h.d_rot = h.d_turned = h.distances = h.T5_buckets = h.d_latent = h.d_query_latent = 0;
    h.alibi = Alibi::none;
    h.relative = RelativeAttention::none;
    h.by_text = h.global_projections = false;
    h.clip = h.growth = 0;
    h.unit_values = h.values_of_keys = h.gated_heads = false;
    h.keys_of_kind = -1;
    h.biases_by_layer = h.turned_values = false;
    h.query_key_norm = QueryKeyNorm::none;
    h.patterns.clear();
    h.shared_query_key.clear();
    h.hashing = h.ring = {};
    return h;
  }
};

}  // namespace qkv::formal

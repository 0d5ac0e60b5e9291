#pragma once

// The choices that later papers add to Algorithms 8 to 10, and those of each layer.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include "formal/theta.h"

namespace qkv::formal {

// Which of a norm's parts there are. plus_one: RMSnorm with 1 + gamma for gamma (Gemma).
// ScaleNorm: one gamma for all (Nguyen & Salazar 2019); capsule: the squash function (Sabour et al. 2017).
enum class NormKind { layer_norm, layer_scale, layer_plain, RMSnorm, plus_one, ScaleNorm, capsule };
// The norms of a branch f of a block: x + f(norm(x)), norm(x + f(x)), x + norm'(f(norm(x))),
// x + norm'(f(x)), x + f(x), norm(x) + f(norm(x)).
enum class NormPlacement { pre, post, sandwich, branch, none, stream };
// Attention and the perceptron one after the other, both of the same X, or of the same normalised X; or of
// two streams: X_1 + f(X_2), then X_2 + g(that) (Gomez et al. 2017, eq. 8; Kitaev et al. 2020).
enum class Branches { serial, parallel, one_norm, reversible };
// heads, whole: RMSnorm; layer, layer_heads: layer_norm of each head, by the same or by its own weights.
enum class QueryKeyNorm { none, heads, whole, layer, layer_heads };

// The vectors e_p that are added to the embeddings: none, columns of W_p, or sines and cosines: those of
// Vaswani et al. 2017; of section 5; all sines before all cosines (Marian); the same with the last wavelength
// 10000 2 pi itself and positions from a number on (tensor2tensor).
enum class PositionVectors { none, learned, sinusoidal, section_5, halves, closed };
// ALiBi: scores fall with the distance by a slope of each head; scaled: as scores are (Falcon).
enum class Alibi { none, by_powers, evens_first, scaled };
// Vectors by which scores know distances (Shaw et al. 2018; Huang et al. 2020; Dai et al. 2019; He et al.
// 2021).
enum class RelativeAttention { none, Shaw, Shaw_both, Transformer_XL, disentangled };

// Mixers, in which tokens meet: self-attention, a recurrence, or the mean of the tokens before.
enum class Mixer { attention, LSTM, GRU, average };

// Which of the tokens that its stack allows a token sees: a union, all of them where it has no part.
struct SparsePattern {
  Index window = 0, dilation = 1;  // the next ones, or every dilation-th of them (Longformer)
  Index stride = 0;                // those at distances that it divides (Sparse Transformer, strided)
  Index global = 0;                // the first, which also see all
  Index block = 0;  // of its block, and the last `summary` of each block (Sparse Transformer, fixed)
  Index neighbours = 0, summary = 0;
  bool ends = false;  // the first and the last block are seen by all and see all (BigBird)
  // True where block i sees block j, both from 1, of so many, 0: there may always be one more (BigBird's
  // random blocks); empty: none are drawn.
  std::function<bool(Index i, Index j, Index blocks)> drawn = {};
  Index beyond = 0;       // of a sequence of at most so many tokens each sees all
  Index first_block = 1;  // so often count the first block's tokens for those between the end blocks

  bool any() const { return window > 0 || stride > 0 || global > 0 || block > 0; }
  // Tokens t_z and t_x count from 1. l: tokens that there are; 0: there may always be one more.
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

// Hyperparameters of one stack of layers, and of what is before and behind it.
struct VariedHyperparameters : Hyperparameters {
  bool bidirectional = false;  // self-attention has the mask of eq. (3), first case, as in an encoder
  Index d_z = 0;               // of the columns Z that its layers also attend to; 0: there are none

  NormKind norm_kind = NormKind::layer_norm;
  NormPlacement placement = NormPlacement::pre;
  bool final_norm = true;  // X is normalised behind the last layer; of post and none it never is
  Branches branches = Branches::serial;
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  Index H_kv = 0;                 // heads that have keys and values of their own; 0: H
  std::vector<Index> head_sizes;  // d_attn and d_mid of each head; none: all have those of Hyperparameters
  Index groups =
      0;  // layer l of L has the parameters of group ((l - 1) groups / L), rounded down, + 1 (ALBERT)

  PositionVectors position_vectors = PositionVectors::learned;
  Index first_position = 0;  // of closed ones the first token's position
  Index grid = 0;            // tokens in a row: positions are rows and columns; 0: they are numbers
  Index d_axial = 0;  // entries that are the row's, above those of the column (Ho et al. 2019); 0: a sum
  bool unit_embeddings = false;  // the columns of W_e, and the rows of W_u, have length 1 (FixNorm)
  double embedding_multiplier = 1;
  Index d_embedding = 0;        // of W_e's columns, which W_in makes d_e of; 0: d_e
  bool projected_last = false;  // W_in also has the positions, and an offset (ALBERT); else W_e alone (OPT)
  bool embedding_norm = false;  // of the sum of embeddings (BERT)
  Index texts = 0;    // a token's embedding also tells which of so many texts it is of; 0: it does not
  bool head = false;  // d_f: lines 10 and 11 of Algorithm 9 are before the unembedding
  Activation head_activation = Activation::as_printed;
  bool unembedding_bias = false;
  double logit_multiplier = 1, logit_cap = 0;

  Index d_rot = 0;            // of queries and keys, entries that are turned (RoPE)
  bool interleaved = false;   // pairs 2i - 1, 2i instead of i, i + d_rot / 2
  double theta_base = 10000;  // of the angles
  Alibi alibi = Alibi::none;
  Index distances = 0;   // each head has a number for so many distances, the last for all beyond; 0: none
  Index T5_buckets = 0;  // or for so many buckets of distances (Raffel et al. 2020); 0: each has its own
  RelativeAttention relative = RelativeAttention::none;
  Index l_rel = 0;    // tokens farther than this count as this far; 0 (Transformer-XL): none does
  Index buckets = 0;  // of disentangled: distances that have a vector, the larger ones share; 0: all
  bool by_content = true, by_position = true, shared_projections = false, normed_distances = false;
  bool by_text = false;  // Transformer-XL: scores also know whether two tokens are of one text (XLNet)
  std::vector<SparsePattern> patterns;  // of layer l the ((l - 1) mod size) + 1-th; none: all
  bool global_projections = false;      // tokens that see all have a W of their own (Longformer)
  std::vector<bool> shared_query_key;   // likewise whether keys are queries of unit mean square (Reformer)
  double score_scale = 0;               // 0: 1 / sqrt(d_attn)
  bool scaled_by_layer = false;         // and 1 / l in layer l
  bool gated = false;                   // W_2 (f(W_1 X + b_1) .* (W_g X + b_g)) (Shazeer 2020)
  bool qkv_bias = true, out_bias = true, mlp_bias = true;
  double residual_multiplier = 1;
  double clip = 0;                 // entries of q, k and v stay in [-clip, clip]; 0: in no bounds
  double score_cap = 0;            // s becomes cap tanh(s / cap); 0: it stays
  bool sinks = false;              // each head has a score that only the softmax's denominator knows
  Index d_latent = 0;              // keys and values are made of a latent (MLA); 0: of X
  Index d_query_latent = 0;        // and queries
  Mixer mixer = Mixer::attention;  // in the place of self-attention
  Index further_layers = 0;        // h -> f(W h + b) of the perceptron
  Index E = 0;                     // experts; 0: one perceptron
  Index E_first = 0, E_every = 1;  // of the layers that have them, from 0
  Index k = 1, d_expert = 0;       // of a token the k best, of so many hidden units
  bool sigmoid_affinities = false, renormalized = false;
  double expert_scale = 1;
  Index d_shared = 0;         // hidden units of a perceptron beside the experts; 0: none
  bool shared_gated = false;  // it counts sigmoid(w . x)

  // Other hyperparameters, of layers that differ, and which each layer has, in turn: 0 are these, i + 1 is
  // kinds[i].
  std::vector<VariedHyperparameters> kinds;
  std::vector<Index> kind_of_layer;

  // The kind of layer l, from 0, its hyperparameters, and so on.
  std::size_t kind(std::size_t l) const {
    return kind_of_layer.empty() ? 0 : static_cast<std::size_t>(kind_of_layer[l % kind_of_layer.size()]);
  }
  const VariedHyperparameters& of_layer(std::size_t l) const {
    return kind(l) == 0 ? *this : kinds[kind(l) - 1];
  }
  bool shares(std::size_t l) const {
    return !shared_query_key.empty() && shared_query_key[l % shared_query_key.size()];
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

  // Those of attention to Z, whose tokens are at no distance from X's: heads, scale, cap, sinks and offsets
  // stay.
  VariedHyperparameters of_cross_attention() const {
    VariedHyperparameters h = *this;
    h.d_rot = h.distances = h.T5_buckets = h.d_latent = h.d_query_latent = 0;
    h.alibi = Alibi::none;
    h.relative = RelativeAttention::none;
    h.by_text = h.global_projections = false;
    h.clip = 0;
    h.query_key_norm = QueryKeyNorm::none;
    h.patterns.clear();
    h.shared_query_key.clear();
    return h;
  }
};

}  // namespace qkv::formal

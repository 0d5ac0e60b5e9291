// The specification of an attention layer: shapes and options.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "qkv/kernels/pattern.h"
#include "qkv/nn/relative_spec.h"
#include "qkv/ops/hashed_attention_spec.h"
#include "qkv/ops/rotary_spec.h"

namespace qkv {

// The norm of queries and keys before their product (Henry et al. 2020).
enum class QueryKeyNorm : uint8_t {
  none,
  heads,           // RMSNorm of each head, with one weight for all heads
  whole,           // RMSNorm of all heads together (OLMo 2)
  layer,           // layer norm of each head, with one gamma and one beta for all heads (Phi)
  layer_heads,     // layer norm of each head, with its own gamma and no beta (StableLM, Cohere)
  heads_plus_one,  // as heads, with the factor 1 + weight (Gemma 3)
  heads_rotated,   // as heads, after rotary positions (Hunyuan)
  unit_rotated,    // as heads_rotated, without a weight (Llama 4)
};

// The shape and the options of Algorithm 5.
struct AttentionSpec {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // heads % kv_heads == 0
  int64_t d_qk = 0;      // width of a query and of a key
  int64_t d_vo = 0;      // width of a value
  // Each head's d_qk and d_vo, if heads differ; d_qk and d_vo above are then the widest head's. Empty: all
  // heads are the same.
  std::vector<int64_t> head_sizes = {};
  bool bias = true;              // bias of queries, keys and values
  bool key_bias = true;          // false: keys have none, whatever `bias` says (DeBERTa)
  bool scaled = true;            // divide the scores by sqrt(d_qk) (Algorithm 4)
  bool scaled_by_layer = false;  // also by the layer's number, from 1 (GPT-2's option)
  float dropout = 0;             // dropout rate of attention probabilities
  bool out_bias = true;          // bias of the output projection
  float scale = 0;               // factor on scores instead; 0: as above
  float clip = 0;  // q, k and v of self-attention are clipped to [-clip, clip] (MPT, OLMo); 0: off
  // Queries of later tokens are longer, so that attention over many keys stays as sharp: at position t they
  // are multiplied by 1 + query_growth ln(1 + floor(t / query_growth_every)), t from query_growth_from
  // (Nakanishi 2025, scalable softmax; Llama 4, Ministral 3). 0: off.
  float query_growth = 0;
  int64_t query_growth_every = 8192, query_growth_from = 0;
  float cap = 0;       // scores s become cap tanh(s / cap) (Gemma 2); 0: no cap
  bool sinks = false;  // each head has a learned score without a value (gpt-oss)
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool value_norm = false;      // values of a head have unit mean square (Gemma 4)
  bool values_of_keys = false;  // values are the projected keys, before norms and positions (Gemma 4)
  // Each head's output is multiplied by sigmoid(W x), number by number (Qiu et al. 2025; Qwen3-Next).
  bool gated = false;
  // Keys and values are those of the last layer before with other keys and all else alike (Brandon et al.
  // 2024, cross-layer attention; Gemma 4).
  bool reused_keys = false;
  // Cross-attention without a softmax: linear attention of elu(x) + 1 (Katharopoulos et al. 2020), for which
  // a source is one matrix of each head, whatever its length.
  bool cross_linear = false;
  bool global_projections = false;     // global tokens have their own queries, keys and values (Longformer)
  std::vector<Pattern> patterns = {};  // self-attention of layer l has patterns[l % size]; empty: all keys
  // For layers in turn: 1 if self-attention uses its queries as keys, each scaled to unit mean square. A
  // token then sees itself only if it sees no other (Kitaev et al. 2020, Reformer, section 2). Empty: no
  // layer does.
  std::vector<int64_t> shared_query_key = {};
  // LSH attention of these layers, for sequences that are longer than a chunk; chunk 0: they attend to all.
  HashedAttention hashing = {};
  // An encoder's other layers: the chunk of a query and those around it, of which the last is before the
  // first (Reformer's local attention), for sequences that are longer than a chunk; chunk 0: they attend to
  // all.
  HashedAttention ring = {};
  RotarySpec rotary = {};      // for self-attention
  RelativeSpec relative = {};  // for self-attention

  bool shares_query_key(int64_t layer) const {
    return !shared_query_key.empty() &&
           shared_query_key[static_cast<size_t>(layer) % shared_query_key.size()] != 0;
  }
  // True if a layer attends by hashes.
  bool hashes(int64_t layer) const { return hashing.chunk > 0 && shares_query_key(layer); }
  // True if a layer attends to chunks in a ring.
  bool rings(int64_t layer) const { return ring.chunk > 0 && !shares_query_key(layer); }
  // Factor on the scores of a layer, counted from 0. `terms`: how many products of d_qk columns a score is
  // the sum of (RelativeSpec::terms).
  float factor(int64_t terms = 1, int64_t layer = 0) const {
    const float one = scale > 0 ? scale : scaled ? 1 / std::sqrt(static_cast<float>(d_qk * terms)) : 1;
    return scaled_by_layer ? one / static_cast<float>(layer + 1) : one;
  }
  // The factor of a head of `size` columns, relative to the widest head's.
  float factor_of_size(int64_t size) const {
    return scaled && scale == 0 ? std::sqrt(static_cast<float>(d_qk) / static_cast<float>(size)) : 1.0F;
  }
  // factor() of each head in layer 0.
  std::vector<float> factors() const {
    std::vector<float> out(static_cast<size_t>(heads), factor());
    for (size_t h = 0; h < head_sizes.size(); ++h) out[h] *= factor_of_size(head_sizes[h]);
    return out;
  }
  // Columns of all heads' queries, keys or values.
  int64_t query_columns() const { return head_sizes.empty() ? heads * d_qk : all_sizes(); }
  int64_t key_columns() const { return head_sizes.empty() ? kv_heads * d_qk : all_sizes(); }
  int64_t value_columns() const { return head_sizes.empty() ? kv_heads * d_vo : all_sizes(); }
  // Columns of the gate of all heads' outputs.
  int64_t gate_columns() const { return gated ? output_columns() : 0; }
  // Columns of all heads' outputs.
  int64_t output_columns() const { return head_sizes.empty() ? heads * d_vo : all_sizes(); }

  bool operator==(const AttentionSpec&) const = default;

 private:
  int64_t all_sizes() const { return std::accumulate(head_sizes.begin(), head_sizes.end(), int64_t{0}); }
};

}  // namespace qkv

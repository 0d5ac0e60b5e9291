// What an attention layer is: shapes and options.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "qkv/nn/relative.h"
#include "qkv/ops/rotary.h"

namespace qkv {

// The norm of queries and keys before their product (Henry et al. 2020).
enum class QueryKeyNorm : uint8_t {
  none,
  heads,        // RMSnorm of each head, by one weight for all heads
  whole,        // RMSnorm of all heads together (OLMo 2)
  layer,        // layer_norm of each head, by one gamma and one beta for all heads (Phi)
  layer_heads,  // layer_norm of each head, by a gamma of its own, without beta (StableLM, Cohere)
};

// The shape and the options of Algorithm 5.
struct AttentionSpec {
  int64_t heads = 1;
  int64_t kv_heads = 1;  // heads % kv_heads == 0
  int64_t d_qk = 0;      // width of a query and of a key
  int64_t d_vo = 0;      // width of a value
  // Of heads that differ, each one's d_qk and d_vo; those above are the widest's. None: all are the same.
  std::vector<int64_t> head_sizes = {};
  bool bias = true;              // of the queries, keys and values
  bool scaled = true;            // divide the scores by sqrt(d_qk) (Algorithm 4)
  bool scaled_by_layer = false;  // and by the layer's number, from 1 (GPT-2's option)
  float dropout = 0;             // of the probabilities
  bool out_bias = true;          // of the output's projection
  float scale = 0;               // what scores are multiplied by instead; 0: as said above
  float clip = 0;      // self-attention's q, k and v stay in [-clip, clip] (MPT, OLMo); 0: in no bounds
  float cap = 0;       // scores s become cap tanh(s / cap) (Gemma 2); 0: they stay
  bool sinks = false;  // each head has a score without a value, learned (gpt-oss)
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  bool global_projections =
      false;  // tokens that see all have queries, keys and values of their own (Longformer)
  std::vector<Pattern> patterns = {};  // of self-attention: layer l has patterns[l % size]; none: all keys
  // Of self-attention, of layers in turn: 1 where keys are the queries, each of unit mean square, and a token
  // sees itself only where it sees no other (Kitaev et al. 2020, Reformer, section 2); none: of no layer.
  std::vector<int64_t> shared_query_key = {};
  // Of these layers: longer sequences would be cut into buckets by hashes of the keys (LSH attention), which
  // is not supported; 0: all are attended to in full.
  int64_t hashed_beyond = 0;
  RotarySpec rotary = {};      // of self-attention
  RelativeSpec relative = {};  // of self-attention

  bool shares_query_key(int64_t layer) const {
    return !shared_query_key.empty() &&
           shared_query_key[static_cast<size_t>(layer) % shared_query_key.size()] != 0;
  }
  // What scores are multiplied by, each being the sum of so many products of d_qk columns
  // (RelativeSpec::terms) in this layer, from 0.
  float factor(int64_t terms = 1, int64_t layer = 0) const {
    const float one = scale > 0 ? scale : scaled ? 1 / std::sqrt(static_cast<float>(d_qk * terms)) : 1;
    return scaled_by_layer ? one / static_cast<float>(layer + 1) : one;
  }
  // The factor of a head of `size` columns over that of the widest.
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
  // And of their output.
  int64_t output_columns() const { return head_sizes.empty() ? heads * d_vo : all_sizes(); }

  bool operator==(const AttentionSpec&) const = default;

 private:
  int64_t all_sizes() const { return std::accumulate(head_sizes.begin(), head_sizes.end(), int64_t{0}); }
};

}  // namespace qkv

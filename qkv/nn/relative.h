// Attention that knows how far a key is from a query by vectors: what its scores gain, and out of which
// weights.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/context.h"
#include "qkv/nn/parameter.h"
#include "qkv/ops/relative_products.h"

namespace qkv {

class Linear;

// The scores of query q_i and key k_j, before they are scaled; d = i - j, cut off at a longest distance.
enum class RelativeAttention : uint8_t {
  none,       // q_i . k_j
  shaw,       // q_i . (k_j + a_d) (Shaw et al. 2018, without the part of the values)
  shaw_both,  // and + k_j . a_d (Huang et al. 2020, method 4)
  // (q_i + u) . k_j + (q_i + v) . W_r r_d, with sinusoids r_d (Dai et al. 2019, Transformer-XL)
  transformer_xl,
  // q_i . k_j + q_i . W_k p_d + k_j . W_q p_d, with vectors p_d that all layers share (He et al. 2021,
  // DeBERTa); divided by the root of the number of these terms, too.
  disentangled,
};

// Its options.
struct RelativeSpec {
  RelativeAttention kind = RelativeAttention::none;
  int64_t distance = 0;  // tokens farther than this count as this far; of transformer_xl 0: none does
  int64_t buckets =
      0;  // of disentangled: distances on one side that have a vector; the larger ones share; 0: all
  bool by_content = true, by_position = true;  // of disentangled: its second term, its third
  bool shared_projections = false;             // of disentangled: W_k and W_q are those of keys and queries
  bool normed = false;                         // of disentangled: a LayerNorm of the vectors p_d
  // Of transformer_xl: + (q_i + s) . g, g of two vectors by whether the segments of i and j are the same
  // (Yang et al. 2019, XLNet).
  bool segments = false;

  bool on() const { return kind != RelativeAttention::none; }
  // Terms that a score is the sum of, where it is divided by their number.
  int terms() const { return kind == RelativeAttention::disentangled ? 1 + by_content + by_position : 1; }
  // Whether a bias of the keys is seen by the softmax.
  bool sees_key_bias() const {
    return kind == RelativeAttention::shaw_both || kind == RelativeAttention::disentangled;
  }
  // Where distances up to `reach` find their vectors. `causal`: keys are never after the query.
  DistanceRows rows(bool causal, int64_t reach) const;
  bool operator==(const RelativeSpec&) const = default;
};

// One layer's weights of this.
class RelativeEncoding {
 public:
  // What heads there are, and how they were made.
  struct Shape {
    int64_t width, heads, kv_heads, d_qk;
    bool bias, causal;
    float scale;  // of the scores
  };
  RelativeEncoding(Parameters& parameters, const std::string& name, const RelativeSpec& spec,
                   const Shape& shape, float std);

  // The tables for queries and the keys that they see; q becomes what meets the keys. `query_key` projects to
  // queries, then keys, and more.
  PairTables tables(Heads& q, const Heads& k, const Linear& query_key, const Context& context) const;

 private:
  RelativeSpec spec_;
  Shape shape_;
  Parameter* vectors_ = nullptr;               // of Shaw: [rows, d_qk]
  std::unique_ptr<Linear> to_key_, to_query_;  // of distances: W_r or W_k, and W_q
  Parameter *content_bias_ = nullptr, *position_bias_ = nullptr, *segment_bias_ = nullptr;  // [heads d_qk]
  Parameter* segment_ = nullptr;                                                            // [2, heads d_qk]
};

}  // namespace qkv

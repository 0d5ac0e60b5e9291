// The options of relative position vectors (nn/relative.h).
#pragma once

#include <cstdint>

namespace qkv {

struct DistanceRows;  // ops/relative_products.h

// The scores of query q_i and key k_j before they are scaled; d = i - j, clipped to a longest distance.
enum class RelativeAttention : uint8_t {
  none,       // q_i . k_j
  shaw,       // q_i . (k_j + a_d) (Shaw et al. 2018, without the values' part)
  shaw_both,  // and + k_j . a_d (Huang et al. 2020, method 4)
  // (q_i + u) . k_j + (q_i + v) . W_r r_d, with sinusoids r_d (Dai et al. 2019, Transformer-XL)
  transformer_xl,
  // q_i . k_j + q_i . W_k p_d + k_j . W_q p_d, with vectors p_d that all layers share (He et al. 2021,
  // DeBERTa); also divided by the root of the number of these terms.
  disentangled,
};

// Options of relative attention.
struct RelativeSpec {
  RelativeAttention kind = RelativeAttention::none;
  int64_t distance = 0;  // longest distance: tokens beyond it count as this far; transformer_xl 0: no limit
  int64_t buckets = 0;   // disentangled: vectors per side, shared by larger distances; 0: one per distance
  bool by_content = true, by_position = true;  // disentangled: its second term, its third
  bool shared_projections = false;             // disentangled: W_k and W_q are those of keys and queries
  bool normed = false;                         // disentangled: layer norm of the vectors p_d
  // transformer_xl: adds (q_i + s) . g. Vector g is one of two, by whether i and j are in the same segment
  // (Yang et al. 2019, XLNet).
  bool segments = false;

  bool on() const { return kind != RelativeAttention::none; }
  // Number of terms of a score if it is divided by the root of that number, else 1.
  int terms() const { return kind == RelativeAttention::disentangled ? 1 + by_content + by_position : 1; }
  // True if the softmax does not cancel a bias of the keys.
  bool sees_key_bias() const {
    return kind == RelativeAttention::shaw_both || kind == RelativeAttention::disentangled;
  }
  // How distances up to `reach` map to vectors. `causal`: keys are never after the query.
  DistanceRows rows(bool causal, int64_t reach) const;
  bool operator==(const RelativeSpec&) const = default;
};

}  // namespace qkv

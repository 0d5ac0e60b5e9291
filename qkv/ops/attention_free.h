// Attention without products of queries and keys: the attention-free transformer.
#pragma once

#include <span>

#include "qkv/ops/attention.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// The weight w(t, s) of the key at position s for the token at position t. Both undefined: 0.
struct PositionWeights {
  Tensor table = {};        // f32 [positions, positions]: row t, column s
  Tensor by_distance = {};  // f32 [heads, reach]: column t - s, in order; without a mask t - s + window - 1
  // Farther keys, |t - s| >= window, have the weight 0, and are summed all the same; 0: no limit.
  int64_t window = 0;
};

// For each column y_t = sum_s e^(k_s + w(t, s)) v_s / sum_s e^(k_s + w(t, s)), over the keys of the sequence,
// s <= t if causal (Zhai et al. 2021, AFT, equation 2, without the gate). k, v [M, D] of one type -> [N, D].
// `offsets` [sequences + 1] divides the N queries, which are the last tokens of their sequences. Sums are
// parts of their largest term, so nothing overflows. Time grows with the window, or with the square of the
// length where there is none. Throws Error if shapes do not fit, or a token is beyond the table.
Tensor attention_free(const Tensor& k, const Tensor& v, const PositionWeights& weights,
                      std::span<const int32_t> offsets, const KeyLayout& keys, bool causal);

}  // namespace qkv

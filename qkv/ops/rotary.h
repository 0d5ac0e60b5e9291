// Rotary positions (Su et al. 2021, RoPE): queries and keys are rotated by angles that grow with their
// position.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/ops/rotary_spec.h"
#include "qkv/tensor/indices.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// cos and sin f32 [N, width]: row n has the cosines of the width / 2 pairs at positions[n], then the sines.
// `lengths`: the length so far of each row's sequence, for dynamic and longrope scaling; a single one is
// for all rows. positions [N, 2]: the first number rotates the first half of the pairs, as in a head of
// half the width; the second rotates the others.
Tensor rotation(const RotarySpec& spec, const Indices& positions, std::span<const int64_t> lengths);
inline Tensor rotation(const RotarySpec& spec, const Indices& positions, int64_t length) {
  return rotation(spec, positions, std::span(&length, 1));
}

// x [N, C] with its first `heads` heads of `head_width` columns rotated by rotation() of these rows; other
// columns are unchanged. Scores of rotated queries and keys depend only on the difference of their
// positions.
Tensor rotary(const Tensor& x, int64_t heads, int64_t head_width, RotaryLayout layout,
              const Tensor& rotation);

}  // namespace qkv

// Blocks as the integers and factors that products compute with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/tensor/weight_type.h"

namespace qkv {

// Elements that share a minimum, and whose activations are summed for it.
inline constexpr int kMinimumGroup = 16;

// One block: number i is d w[i] + m u[i / kMinimumGroup]. The integers w have the scales of smaller groups in
// them; they are less than 2^13 in magnitude, and 256 products by 8 bits fit 32 bits.
// Elements behind the block's own are not set, nor is u where the type has no minima.
struct BlockIntegers {
  float d, m;
  int16_t w[256];
  int16_t u[256 / kMinimumGroup];
};

// True if blocks of the type have minima: otherwise m is 0.
constexpr bool has_minima(WeightType type) {
  using enum WeightType;
  return type == q4_1 || type == q5_1 || type == q2_k || type == q4_k || type == q5_k;
}

// The integers of the block at `block`. REQUIRES: the type is quantised.
BlockIntegers block_integers(WeightType type, const std::byte* block);

}  // namespace qkv

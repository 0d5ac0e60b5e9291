// The scores of a router of experts (ops/experts.h).
#pragma once

#include <cstdint>

namespace qkv {

// How a router's logits become affinities.
enum class RouterScore : uint8_t {
  softmax,  // over the experts
  sigmoid,  // each expert on its own (DeepSeek-V3)
};

}  // namespace qkv

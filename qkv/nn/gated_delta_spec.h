// The options of Gated DeltaNet (nn/gated_delta.h).
#pragma once

#include <cstdint>

namespace qkv {

struct GatedDeltaSpec {
  int64_t heads = 4, key_heads = 0;  // values', and those of queries and keys, which neighbours share
  int64_t d_k = 0, d_v = 0;          // width of a key and of a value
  int64_t kernel = 4;                // tokens that the convolution of queries, keys and values sees

  bool operator==(const GatedDeltaSpec&) const = default;
};

}  // namespace qkv

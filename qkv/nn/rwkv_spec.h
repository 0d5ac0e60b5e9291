// The options of RWKV's time mixing (nn/rwkv.h).
#pragma once

#include <cstdint>

namespace qkv {

struct Rwkv4Spec {
  int64_t inner = 0;  // channels of keys, values and receptances

  bool operator==(const Rwkv4Spec&) const = default;
};

struct Rwkv7Spec {
  int64_t heads = 0;
  // Widths between the two maps that decays, rates, parts of the first layer's values, and gates come from.
  int64_t decay_rank = 0, rate_rank = 0, value_rank = 0, gate_rank = 0;

  bool operator==(const Rwkv7Spec&) const = default;
};

}  // namespace qkv

// The options of state-space models (nn/state_space.h).
#pragma once

#include <cstdint>

namespace qkv {

struct MambaSpec {
  int64_t inner = 0;   // channels
  int64_t state = 16;  // numbers of state a channel
  int64_t rank = 0;    // width of what steps are made of
  int64_t kernel = 4;
  bool bias = false, convolution_bias = true;  // both products have one; the convolution has
  bool norms = false;                          // RMSNorm of what steps, B and C are made of (Jamba)

  bool operator==(const MambaSpec&) const = default;
};

struct Mamba2Spec {
  int64_t heads = 0, head_width = 64;
  int64_t state = 128;  // numbers of state a channel
  int64_t groups = 1;   // B and C, which neighbouring heads share
  int64_t kernel = 4;
  bool bias = false, convolution_bias = true;  // both products have one; the convolution has
  float step_low = 0, step_high = 0;           // limits of steps; high 0: none

  bool operator==(const Mamba2Spec&) const = default;
};

}  // namespace qkv

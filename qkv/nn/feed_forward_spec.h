// The options of a feed-forward network (nn/feed_forward.h).
#pragma once

#include <cstdint>

#include "qkv/kernels/activation.h"

namespace qkv {

// RWKV's channel mixing: a feed-forward network also reads the row before a token's.
enum class ChannelMix : uint8_t {
  none,
  rwkv4,  // hidden units, and a sigmoid that multiplies the output (Peng et al. 2023, section 3.1)
  rwkv7,  // hidden units alone (Peng et al. 2025, section 4)
};

// The shape and the options of a feed-forward network.
struct FeedForwardSpec {
  int64_t hidden = 0;  // d_mlp
  Activation activation = Activation::gelu_tanh;
  bool gated = false;  // f(W_1 X) times V X, element by element (Shazeer 2020)
  bool bias = true;
  int64_t hidden_layers = 1;
  // gated: f's input is cut off above this number, V X beyond it in both directions, and V X + 1 takes the
  // place of V X (gpt-oss). 0: off.
  float gate_limit = 0;
  ChannelMix channel_mix = ChannelMix::none;
};

}  // namespace qkv

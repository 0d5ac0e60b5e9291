// The activation functions.
#pragma once

#include <cstdint>

namespace qkv {

// The activation function of a feed-forward network or a head.
enum class Activation : uint8_t {
  relu,          // max(x, 0)
  gelu,          // x Phi(x), Phi the normal distribution (Phuong & Hutter, eq. 5)
  gelu_tanh,     // its tanh approximation: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), as in GPT-2
  gelu_quick,    // x sigmoid(1.702 x) (Hendrycks & Gimpel 2016, section 2; CLIP)
  silu,          // x sigmoid(x), "swish"
  relu_squared,  // max(x, 0)^2 (So et al. 2021, Primer)
  tanh,          // as in BERT's pooler
  sigmoid,       // 1 / (1 + e^-x): the gate of GLU (Dauphin et al. 2017)
  identity,      // x: the gate of a bilinear layer (Shazeer 2020)
  xielu,         // with two learned numbers (ops/xielu.h): no kernel has it
};

}  // namespace qkv

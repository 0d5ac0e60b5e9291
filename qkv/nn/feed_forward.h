// The feed-forward network of a block.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qkv/nn/linear.h"
#include "qkv/nn/sublayer.h"
#include "qkv/nn/token_shift.h"

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

// The hidden layer from its linear layer's output: up [N, H], or [N, 2 H] if gated -> [N, H].
Tensor activated(const FeedForwardSpec& spec, const Tensor& up);

// W_2 f(W_1 X + b_1 1^T) + b_2 1^T; each further hidden layer is h -> f(W h + b). With a channel mix, W_1
// reads a token's row x and the one before it, x': x' + m (x - x') of rwkv4, x + m (x' - x) of rwkv7, with m
// the parameter shift.k [width]. rwkv4 also has shift.r [width] and `receptance` [width, width]: the output
// is multiplied by sigmoid(W_r (x' + m_r (x - x'))).
class FeedForward : public Sublayer {
 public:
  FeedForward(Parameters& parameters, const std::string& name, int64_t width, const FeedForwardSpec& spec,
              InitStd std);
  void add_states(DecodingStates& states, int64_t sequences) const override;
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  std::string name_;
  FeedForwardSpec spec_;
  std::unique_ptr<TokenShift> shift_;
  Parameter *of_hidden_ = nullptr, *of_receptance_ = nullptr;
  Linear up_;  // W_mlp1; gated: then V's rows
  std::vector<Linear> inner_;
  Linear down_;  // W_mlp2
  std::unique_ptr<Linear> receptance_;
  Parameter *above_ = nullptr, *below_ = nullptr;  // xielu's alpha_p and alpha_n, f32 [1]
};

}  // namespace qkv

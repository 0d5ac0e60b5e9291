// The feed-forward network of a block.
#pragma once

#include <string>
#include <vector>

#include "qkv/nn/linear.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

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
};

// The hidden layer from its linear layer's output: up [N, H], or [N, 2 H] if gated -> [N, H].
Tensor activated(const FeedForwardSpec& spec, const Tensor& up);

// W_2 f(W_1 X + b_1 1^T) + b_2 1^T; each further hidden layer is h -> f(W h + b).
class FeedForward : public Sublayer {
 public:
  FeedForward(Parameters& parameters, const std::string& name, int64_t width, const FeedForwardSpec& spec,
              InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  std::string name_;
  FeedForwardSpec spec_;
  Linear up_;  // W_mlp1; gated: then V's rows
  std::vector<Linear> inner_;
  Linear down_;                                    // W_mlp2
  Parameter *above_ = nullptr, *below_ = nullptr;  // xielu's alpha_p and alpha_n, f32 [1]
};

}  // namespace qkv

// The feed-forward network of a block.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qkv/nn/feed_forward_spec.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/sublayer.h"
#include "qkv/nn/token_shift.h"

namespace qkv {

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

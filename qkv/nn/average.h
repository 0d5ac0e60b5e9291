// The mean of what came before, as the function of a residual branch.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/linear.h"
#include "qkv/nn/recurrent_state.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

// W_o of the mean of W_v x over a token and those before it: attention whose scores are all the same (Zhang
// et al. 2018, "Accelerating Neural Transformer via an Average Attention Network", eq. 1 with a linear map).
// It remembers a sum.
class Average : public Sublayer, private Remembering<RecurrentState> {
 public:
  // Parameters begin with `name`: value.weight [width, width], value.bias, out.weight [width, width],
  // out.bias.
  Average(Parameters& parameters, const std::string& name, int64_t width, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;
  void add_states(DecodingStates& states, int64_t sequences) const override { add_state(states, sequences); }

 private:
  std::string name_;
  std::unique_ptr<RecurrentState> make_state(int64_t sequences) const override {
    return std::make_unique<RecurrentState>(sequences, width_);
  }

  int64_t width_;
  Linear value_, out_;
};

}  // namespace qkv

// Linear attention and the delta rule, as the function of a residual branch.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/linear.h"
#include "qkv/nn/replayed_state.h"
#include "qkv/nn/sublayer.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/feature_map.h"

namespace qkv {

struct FastWeightsSpec {
  int64_t heads = 4;
  FeatureMap features = FeatureMap::elu;
  bool normalised =
      true;  // sums are divided by those of their similarities, else by the root of the head's width
  bool delta = false;  // the delta rule, with beta = sigmoid(W_beta x)
  bool causal = true;
};

// W_o y, with y of ops/fast_weights.h and its q, k and v of linear maps of x (Katharopoulos et al. 2020, eq.
// 9; Schlag et al. 2021, eq. 24). It remembers matrices, whatever the length of a text.
class FastWeightsLayer : public Sublayer, private Remembering<ReplayedState> {
 public:
  // Parameters begin with `name`: q, k, v and out with weight [width, width] and bias, beta with weight
  // [heads, width] and bias. REQUIRES: width is a multiple of the number of heads.
  FastWeightsLayer(Parameters& parameters, const std::string& name, const FastWeightsSpec& spec,
                   int64_t width, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;
  void add_states(DecodingStates& states, int64_t sequences) const override { add_state(states, sequences); }

 private:
  std::unique_ptr<ReplayedState> make_state(int64_t sequences) const override;

  FastWeightsSpec spec_;
  int64_t width_;
  Linear q_, k_, v_, out_;
  std::unique_ptr<Linear> beta_;
};

}  // namespace qkv

// Gated DeltaNet, as the function of a residual branch.
#pragma once

#include <string>

#include "qkv/nn/convolution.h"
#include "qkv/nn/gated_delta_spec.h"

namespace qkv {

// W_o (RMSnorm(y) * silu(W_z x)), head by head, with y of the gated delta rule (ops/fast_weights.h): queries
// and keys of unit length and values of silu(conv(W x)), beta = sigmoid(W_b x), decay = -exp(A)
// softplus(W_a x + dt) (Yang et al. 2024, section 3.4; Qwen3-Next).
class GatedDeltaNet : public ReplayedMixer {
 public:
  // Parameters begin with `name`: in with weight [.., width], whose rows are those of beta, decay, queries,
  // keys, values and gate; convolution; step_bias and log_rate [heads]; gate_norm.gamma [d_v]; out.
  GatedDeltaNet(Parameters& parameters, const std::string& name, const GatedDeltaSpec& spec, int64_t width,
                float norm_epsilon, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  Size size() const override;
  Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
            std::span<const int32_t> marks) const override;
  int64_t keys() const { return spec_.key_heads * spec_.d_k; }
  int64_t values() const { return spec_.heads * spec_.d_v; }

  GatedDeltaSpec spec_;
  float norm_epsilon_;
  Linear in_;
  Convolution convolution_;
  Parameter *step_bias_, *log_rate_, *gamma_;
  Linear out_;
};

}  // namespace qkv

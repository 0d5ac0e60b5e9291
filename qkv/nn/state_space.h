// State-space models as the function of a residual branch: Mamba and Mamba-2.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/convolution.h"
#include "qkv/nn/state_space_spec.h"

namespace qkv {

// W_o (y * silu(z)), with [x, z] = W_in of the input, u = silu(conv(x)), [r, B, C] = W_u u, steps
// softplus(W_r r + b) and y of the selective scan of u (Gu & Dao 2023, section 3.4).
class Mamba : public ReplayedMixer {
 public:
  // Parameters begin with `name`: in with weight [2 inner, width]; convolution; select with weight
  // [rank + 2 state, inner]; step with weight [inner, rank]; step_bias [inner]; log_rate [inner, state];
  // skip [inner]; out; of norms step_norm.gamma [rank], B_norm.gamma and C_norm.gamma [state].
  Mamba(Parameters& parameters, const std::string& name, const MambaSpec& spec, int64_t width,
        float norm_epsilon, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  Size size() const override;
  Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
            std::span<const int32_t> marks) const override;

  MambaSpec spec_;
  float norm_epsilon_;
  Linear in_;
  Convolution convolution_;
  Linear select_, step_;
  Parameter *step_bias_, *log_rate_, *skip_;
  Parameter *step_norm_ = nullptr, *b_norm_ = nullptr, *c_norm_ = nullptr;
  Linear out_;
};

// W_o RMSnorm(y * silu(z)), with [z, x B C, steps] = W_in of the input, x, B and C after silu(conv(.)), and y
// of H_t = exp(step_t A) H_{t-1} + step_t x_t B_t^T, y_t = H_t C_t + D x_t head by head (Dao & Gu 2024,
// section 7).
class Mamba2 : public ReplayedMixer {
 public:
  // Parameters begin with `name`: in, whose rows are those of z, x, B, C and steps; convolution; step_bias,
  // log_rate and skip [heads]; gate_norm.gamma [heads head_width]; out.
  Mamba2(Parameters& parameters, const std::string& name, const Mamba2Spec& spec, int64_t width,
         float norm_epsilon, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  Size size() const override;
  Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
            std::span<const int32_t> marks) const override;
  int64_t inner() const { return spec_.heads * spec_.head_width; }
  int64_t shared() const { return spec_.groups * spec_.state; }

  Mamba2Spec spec_;
  float norm_epsilon_;
  Linear in_;
  Convolution convolution_;
  Parameter *step_bias_, *log_rate_, *skip_, *gamma_;
  Linear out_;
};

// Parameters of fresh steps and decays: softplus(bias) from 0.001 to 0.1 in equal ratios, over `count` places
// in turn (Gu & Dao 2023, section 3.6), and rates 1, ..., `count` (the same; S4D-Real).
Parameter& add_step_bias(Parameters& parameters, const std::string& name, int64_t count);
Parameter& add_log_rates(Parameters& parameters, const std::string& name, int64_t count);

}  // namespace qkv

// RWKV's time mixing, as the function of a residual branch: generations 4 and 7.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/linear.h"
#include "qkv/nn/replayed_mixer.h"
#include "qkv/nn/rwkv_spec.h"
#include "qkv/nn/token_shift.h"

namespace qkv {

// W_o (sigmoid(r) * wkv(k, v)), with r, k and v linear maps of a token's row and the one before it, mixed
// (Peng et al. 2023, RWKV, section 3.1).
class Rwkv4 : public ReplayedMixer {
 public:
  // Parameters begin with `name`: shift.k, shift.v and shift.r [width], how much of a token's own row each
  // reads; k, v and r with weights [inner, width]; log_rate and bonus [inner]; out.
  Rwkv4(Parameters& parameters, const std::string& name, const Rwkv4Spec& spec, int64_t width, InitStd std);
  void add_states(DecodingStates& states, int64_t sequences) const override;
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  Size size() const override { return {3 * inner_, 2 * inner_}; }
  Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
            std::span<const int32_t> marks) const override;

  int64_t inner_;
  TokenShift shift_;
  Parameter *of_k_, *of_v_, *of_r_;
  Linear k_, v_, r_;
  Parameter *log_rate_, *bonus_;
  Linear out_;
};

// W_o (g * (norm(y) + (r . (k * bonus)) v)), with y of each head's matrix S (ops/fast_weights.h): it fades by
// w, loses the part `a` of what stands under the key d, and gains v under the key k. All come from a token's
// row and the one before it, mixed (Peng et al. 2025, RWKV-7, section 4).
class Rwkv7 : public ReplayedMixer {
 public:
  // Parameters begin with `name`: shift.r, .w, .k, .v, .a and .g [width], how much of the row before each
  // reads; r, k, v and out [width, width]; decay, rate and gate, each .down [rank, width] and .up
  // [width, rank], decay and rate with a bias; key_scale, key_rate and bonus [width]; head_norm.gamma and
  // .beta [width]. Layers after the first also have `value` like rate: they mix the first layer's values in.
  Rwkv7(Parameters& parameters, const std::string& name, const Rwkv7Spec& spec, int64_t width,
        bool first_layer, InitStd std);
  void add_states(DecodingStates& states, int64_t sequences) const override;
  // The context leaves, or hands on, the first layer's values.
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  // f(W_up g(W_down x)), its output f of the caller's choice.
  struct LowRank {
    LowRank(Parameters& parameters, const std::string& name, int64_t width, int64_t rank, bool bias,
            float std);
    Linear down, up;
  };
  Size size() const override { return {width_ * (width_ / heads_), 6 * width_}; }
  Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
            std::span<const int32_t> marks) const override;

  int64_t width_, heads_;
  TokenShift shift_;
  Parameter *of_r_, *of_w_, *of_k_, *of_v_, *of_a_, *of_g_;
  Linear r_, k_, v_;
  LowRank decay_, rate_;
  std::unique_ptr<LowRank> value_;
  LowRank gate_;
  Parameter *key_scale_, *key_rate_, *bonus_, *gamma_, *beta_;
  Tensor unit_;  // a gamma that gives each head length 1
  Linear out_;
};

}  // namespace qkv

// The attention-free transformer's mixer, as the function of a residual branch.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/attention_free_spec.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/replayed_mixer.h"
#include "qkv/ops/attention_free.h"

namespace qkv {

// W_o (sigmoid(q_t) * y_t), y_t = sum_s e^(k_s + w(t, s)) v_s / sum_s e^(k_s + w(t, s)), column by column
// (Zhai et al. 2021, equation 2), with its keys and values in memory.
class AttentionFree : public Sublayer, private Remembering<KeyValueState> {
 public:
  // Parameters begin with `name`: q, k, v and out with weight [width, width] and bias; full and local:
  // `positions` [context, context], or of a rank `positions` and `key_positions` [context, rank]; conv:
  // `positions` [heads, window], or 2 window - 1 where the mask is not causal.
  AttentionFree(Parameters& parameters, const std::string& name, const AftSpec& spec, int64_t width,
                int64_t context, bool causal, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;
  void add_states(DecodingStates& states, int64_t sequences) const override { add_state(states, sequences); }

 private:
  std::unique_ptr<KeyValueState> make_state(int64_t sequences) const override;
  PositionWeights weights() const;

  AftSpec spec_;
  int64_t width_;
  bool causal_;
  Linear q_, k_, v_, out_;
  Parameter *positions_ = nullptr, *key_positions_ = nullptr;
};

// The same without weights of positions in a decoder, whose state are the sums so far: wkv without decay.
class SimpleAttentionFree : public ReplayedMixer {
 public:
  // Parameters as of AttentionFree.
  SimpleAttentionFree(Parameters& parameters, const std::string& name, int64_t width, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  Size size() const override { return {3 * width_, 2 * width_}; }
  Pass pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
            std::span<const int32_t> marks) const override;

  int64_t width_;
  Linear q_, k_, v_, out_;
  Tensor log_rates_, bonus_;  // f32 [width]: none decays, and none is raised
};

}  // namespace qkv

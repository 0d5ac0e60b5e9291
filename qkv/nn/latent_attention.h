// Attention whose keys and values are made of one narrow vector of each token.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/attention.h"
#include "qkv/nn/norm.h"

namespace qkv {

// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, equations 9-19): of a token a latent c and a
// turned key k_R that all heads share; head h has the key [k_R, W_kh c] and the value W_vh c. Queries are
// [turned, not turned] likewise, of x or of a latent of their own. While decoding c and k_R alone are
// remembered: W_kh is multiplied to the query, W_vh to the output.
class LatentAttention : public Sublayer, private Remembering<KeyValueState> {
 public:
  // Widths of the latents; query 0: queries are made of x.
  struct Latents {
    int64_t kv, query;
  };
  // REQUIRES: latents.kv > 0; spec.rotary.width are the shared key's columns, of spec.d_qk.
  LatentAttention(Parameters& parameters, const std::string& name, int64_t width, const AttentionSpec& spec,
                  Latents latents, Mask mask, int64_t layer, uint32_t site, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;
  void add_states(DecodingStates& states, int64_t sequences) const override { add_state(states, sequences); }

 private:
  std::unique_ptr<KeyValueState> make_state(int64_t sequences) const override;
  Tensor queries(const Tensor& x, const Context& context) const;  // [N, heads d_qk]

  Latents latents_;
  std::unique_ptr<Linear> q_latent_;
  std::unique_ptr<Norm> q_norm_;
  Linear q_;
  Linear kv_latent_;  // rows: c, then k_R
  Norm kv_norm_;      // of c
  Parameter* kv_;     // [heads (d_qk - R) + heads d_vo, latent]: all W_kh, then all W_vh
  MultiHeadAttention attention_;
};

}  // namespace qkv

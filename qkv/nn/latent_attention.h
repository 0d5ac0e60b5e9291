// Attention with keys and values computed from one narrow vector per token.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/attention.h"
#include "qkv/nn/norm.h"

namespace qkv {

// Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, equations 9-19). A token has a latent c and a
// rotated key k_R that all heads share. Head h has the key [k_R, W_kh c] and the value W_vh c. Queries have
// the same parts, rotated and not rotated, computed from x or from a latent of their own. Decoding stores
// only c and k_R: W_kh is applied to the query, W_vh to the output.
class LatentAttention : public Sublayer, private Remembering<KeyValueState> {
 public:
  // Widths of the latents; query 0: queries are computed from x.
  struct Latents {
    int64_t kv, query;
  };
  // REQUIRES: latents.kv > 0. spec.rotary.width of a key's spec.d_qk columns are the shared key's.
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
  Norm kv_norm_;      // norm of c
  Parameter* kv_;     // [heads (d_qk - R) + heads d_vo, latent]: all W_kh, then all W_vh
  MultiHeadAttention attention_;
};

}  // namespace qkv

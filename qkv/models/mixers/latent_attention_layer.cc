#include "qkv/models/mixers/attention.h"
#include "qkv/models/mixers/latent_attention.h"
#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/spec.h"
#include "qkv/nn/latent_attention.h"

namespace qkv {

void LatentMixer::check(const ModelSpec& s) const {
  constexpr int64_t kWidest = 576;  // columns of what is remembered
  const AttentionSpec& a = s.attention;
  qkv::check(latent > 0, "model: mixer latent_attention: kv_latent must be at least 1{}",
             query_latent > 0 ? ", query_latent alone is not enough" : "");
  qkv::check(s.architecture == Architecture::decoder, "model: kv_latent needs a decoder, not {}",
             name_of(s.architecture));
  qkv::check(a.rotary.width > 0 && a.rotary.width < a.d_qk,
             "model: kv_latent: part of each key is turned and shared: rotary_width must be between 2 and "
             "{}, got {}",
             a.d_qk - 1, a.rotary.width);
  qkv::check(latent + a.rotary.width <= kWidest,
             "model: kv_latent {} and rotary_width {} must be {} together at most", latent, a.rotary.width,
             kWidest);
  qkv::check(a.kv_heads == a.heads, "model: kv_latent: each head has a key of its own, kv_heads must be {}",
             a.heads);
  qkv::check(a.query_key_norm == QueryKeyNorm::none,
             "model: kv_latent: it is the latent that is normalised, not {}", name_of(a.query_key_norm));
  qkv::check(a.clip == 0, "model: kv_latent: attention_clip {} is of keys that are made of x", a.clip);
  qkv::check(a.head_sizes.empty(), "model: head_sizes: heads made of kv_latent have one size");
  qkv::check(!a.relative.on(), "model: relative_attention {}: kv_latent leaves no keys that could meet it",
             name_of(a.relative.kind));
  qkv::check(a.shared_query_key.empty(), "model: shared_query_key does not go with kv_latent");
  qkv::check(s.memory == 0, "model: memory does not go with kv_latent");
}

std::unique_ptr<Sublayer> LatentMixer::make(const MixerPlace& p) const {
  return std::make_unique<LatentAttention>(p.parameters, p.name, p.spec.width, p.spec.attention,
                                           LatentAttention::Latents{latent, query_latent}, p.mask, p.layer,
                                           p.site, p.std);
}

MixerCost LatentMixer::cost(const ModelSpec& spec, bool causal) const {
  MixerCost cost = AttentionMixer().cost(spec, causal);
  cost.remembered = latent + spec.attention.rotary.width;
  return cost;
}

}  // namespace qkv

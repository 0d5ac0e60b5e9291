// Attention with keys and values computed from latents, as a mixer.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/models/spec_field.h"

namespace qkv {

// Multi-head latent attention (nn/latent_attention.h; DeepSeek-AI 2024).
struct LatentMixer {
  static constexpr const char* kName = "latent_attention";
  static constexpr const char* kPart = "attention";
  static constexpr bool kAttends = true;
  static constexpr bool kKnowsOrder = false;

  int64_t latent = 0;        // width of the latent of keys and values
  int64_t query_latent = 0;  // width of the latent of queries; 0: queries are computed from x

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "kv_latent",
       .help = "latent_attention: width of the compressed vector that the KV cache stores (MLA)",
       .weights = WithWeights::kept,
       .since = 6},
      m.latent, Integers{0, 576});
    v({.name = "query_latent",
       .help = "latent_attention: width of the compressed query vector (0: queries are not compressed)",
       .weights = WithWeights::kept,
       .since = 6},
      m.query_latent, Integers{0, 1 << 20});
  }
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const LatentMixer&) const = default;
};

}  // namespace qkv

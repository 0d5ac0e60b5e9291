// RWKV's time mixing as mixers: generations 4 and 7.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/models/spec_field.h"
#include "qkv/nn/rwkv_spec.h"

namespace qkv {

// RWKV-4 (nn/rwkv.h; Peng et al. 2023).
struct Rwkv4Mixer : Rwkv4Spec {
  static constexpr const char* kName = "rwkv4";
  static constexpr const char* kPart = "rwkv4";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = true;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "rwkv4_inner",
       .help = "rwkv4: channels of keys, values and receptances",
       .derived = "width",
       .weights = WithWeights::kept,
       .since = 21},
      m.inner, Integers{0, 1 << 20});
  }
  void derive(int64_t width);
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const Rwkv4Mixer&) const = default;
};

// RWKV-7 (nn/rwkv.h; Peng et al. 2025).
struct Rwkv7Mixer : Rwkv7Spec {
  static constexpr const char* kName = "rwkv7";
  static constexpr const char* kPart = "rwkv7";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = true;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "rwkv7_heads",
       .help = "rwkv7: heads, each with a matrix that tokens write to",
       .derived = "width / 64, at least 1",
       .weights = WithWeights::kept,
       .since = 21},
      m.heads, Integers{0, 65536});
    v({.name = "rwkv7_decay_rank",
       .help = "rwkv7: width of the vector from which a token's decays are computed",
       .derived = "1.8 sqrt(width), to the nearest 32, at least 32",
       .weights = WithWeights::kept,
       .since = 21},
      m.decay_rank, Integers{0, 1 << 20});
    v({.name = "rwkv7_rate_rank",
       .help = "rwkv7: the same for the part of what stands under a key that is taken out",
       .derived = "rwkv7_decay_rank",
       .weights = WithWeights::kept,
       .since = 21},
      m.rate_rank, Integers{0, 1 << 20});
    v({.name = "rwkv7_value_rank",
       .help = "rwkv7: the same for the part of the first layer's values in a later layer's",
       .derived = "1.3 sqrt(width), to the nearest 32, at least 32",
       .weights = WithWeights::kept,
       .since = 21},
      m.value_rank, Integers{0, 1 << 20});
    v({.name = "rwkv7_gate_rank",
       .help = "rwkv7: the same for the gates of the output",
       .derived = "0.6 width^0.8, to the nearest 32, at least 32",
       .weights = WithWeights::kept,
       .since = 21},
      m.gate_rank, Integers{0, 1 << 20});
  }
  void derive(int64_t width);
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const Rwkv7Mixer&) const = default;
};

}  // namespace qkv

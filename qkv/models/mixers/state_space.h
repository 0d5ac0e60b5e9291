// State-space models as mixers: Mamba and Mamba-2.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/models/spec_field.h"
#include "qkv/nn/state_space_spec.h"

namespace qkv {

// Mamba (nn/state_space.h; Gu & Dao 2023).
struct MambaMixer : MambaSpec {
  static constexpr const char* kName = "mamba";
  static constexpr const char* kPart = "mamba";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = true;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "mamba_inner",
       .help = "mamba: channels",
       .derived = "2 width",
       .weights = WithWeights::kept,
       .since = 20},
      m.inner, Integers{0, 1 << 20});
    v({.name = "mamba_state",
       .help = "mamba: numbers of state of a channel",
       .weights = WithWeights::kept,
       .since = 20},
      m.state, Integers{1, 65536});
    v({.name = "mamba_rank",
       .help = "mamba: width of the vector from which the steps of all channels are computed",
       .derived = "width / 16, rounded up",
       .weights = WithWeights::kept,
       .since = 20},
      m.rank, Integers{0, 1 << 20});
    v({.name = "mamba_kernel",
       .help = "mamba: tokens that the convolution sees",
       .weights = WithWeights::kept,
       .since = 20},
      m.kernel, Integers{2, 64});
    v({.name = "mamba_bias",
       .help = "mamba: biases of the first and the last product",
       .weights = WithWeights::kept,
       .since = 20},
      m.bias);
    v({.name = "mamba_convolution_bias",
       .help = "mamba: bias of the convolution",
       .weights = WithWeights::kept,
       .since = 20},
      m.convolution_bias);
    v({.name = "mamba_norms",
       .help = "mamba: RMSNorm of the vectors that steps, B and C come from (Jamba)",
       .weights = WithWeights::kept,
       .since = 20},
      m.norms);
  }
  void derive(int64_t width);
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const MambaMixer&) const = default;
};

// Mamba-2 (nn/state_space.h; Dao & Gu 2024).
struct Mamba2Mixer : Mamba2Spec {
  static constexpr const char* kName = "mamba2";
  static constexpr const char* kPart = "mamba2";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = true;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "mamba2_head_width",
       .help = "mamba2: channels of a head",
       .weights = WithWeights::kept,
       .since = 20},
      m.head_width, Integers{1, 65536});
    v({.name = "mamba2_heads",
       .help = "mamba2: heads, each with a decay",
       .derived = "2 width / mamba2_head_width",
       .weights = WithWeights::kept,
       .since = 20},
      m.heads, Integers{0, 65536});
    v({.name = "mamba2_state",
       .help = "mamba2: numbers of state of a channel",
       .weights = WithWeights::kept,
       .since = 20},
      m.state, Integers{1, 65536});
    v({.name = "mamba2_groups",
       .help = "mamba2: pairs of B and C, which neighbouring heads share",
       .weights = WithWeights::kept,
       .since = 20},
      m.groups, Integers{1, 65536});
    v({.name = "mamba2_kernel",
       .help = "mamba2: tokens that the convolution sees",
       .weights = WithWeights::kept,
       .since = 20},
      m.kernel, Integers{2, 64});
    v({.name = "mamba2_bias",
       .help = "mamba2: biases of the first and the last product",
       .weights = WithWeights::kept,
       .since = 20},
      m.bias);
    v({.name = "mamba2_convolution_bias",
       .help = "mamba2: bias of the convolution",
       .weights = WithWeights::kept,
       .since = 20},
      m.convolution_bias);
    v({.name = "mamba2_step_low",
       .help = "mamba2: steps below this are raised to it",
       .weights = WithWeights::kept,
       .since = 20},
      m.step_low, Numbers{0, 1e6});
    v({.name = "mamba2_step_high",
       .help = "mamba2: steps above this are lowered to it (0: no limit)",
       .weights = WithWeights::kept,
       .since = 20},
      m.step_high, Numbers{0, 1e6});
  }
  void derive(int64_t width);
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const Mamba2Mixer&) const = default;
};

}  // namespace qkv

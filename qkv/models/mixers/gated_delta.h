// Gated DeltaNet as a mixer.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/models/spec_field.h"
#include "qkv/nn/gated_delta_spec.h"

namespace qkv {

// Gated DeltaNet (nn/gated_delta.h; Yang et al. 2024).
struct GatedDeltaMixer : GatedDeltaSpec {
  static constexpr const char* kName = "gated_delta";
  static constexpr const char* kPart = "gated_delta";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = true;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "gated_delta_heads",
       .help = "gated_delta: heads of values, each with a matrix",
       .weights = WithWeights::kept,
       .since = 20},
      m.heads, Integers{1, 1024});
    v({.name = "gated_delta_key_heads",
       .help = "gated_delta: heads of queries and keys, which neighbouring heads of values share",
       .derived = "gated_delta_heads",
       .weights = WithWeights::kept,
       .since = 20},
      m.key_heads, Integers{0, 1024});
    v({.name = "gated_delta_key_width",
       .help = "gated_delta: width of a query and of a key",
       .derived = "width / gated_delta_heads",
       .weights = WithWeights::kept,
       .since = 20},
      m.d_k, Integers{0, 65536});
    v({.name = "gated_delta_value_width",
       .help = "gated_delta: width of a value",
       .derived = "width / gated_delta_heads",
       .weights = WithWeights::kept,
       .since = 20},
      m.d_v, Integers{0, 65536});
    v({.name = "gated_delta_kernel",
       .help = "gated_delta: tokens that the convolution of queries, keys and values sees",
       .weights = WithWeights::kept,
       .since = 20},
      m.kernel, Integers{2, 64});
  }
  void derive(int64_t width);
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const GatedDeltaMixer&) const = default;
};

}  // namespace qkv

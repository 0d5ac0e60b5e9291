// Linear attention and the delta rule as mixers.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/models/spec_field.h"
#include "qkv/ops/feature_map_spec.h"

namespace qkv {

// Linear attention (nn/fast_weights.h; Katharopoulos et al. 2020).
struct LinearAttentionMixer {
  static constexpr const char* kName = "linear_attention";
  static constexpr const char* kPart = "fast_weights";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = false;

  int64_t heads = 4;
  FeatureMap features = FeatureMap::elu;
  bool normalised = true;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "linear_heads",
       .help = "linear_attention: heads, each with a matrix",
       .weights = WithWeights::kept,
       .since = 19},
      m.heads, Integers{1, 1024});
    v({.name = "linear_features",
       .help = "linear_attention: map of queries and keys: identity, elu (elu(x) + 1), relu, shares (elu "
               "divided by its sum), unit (length 1), near_unit (x / (|x| + 0.001))",
       .weights = WithWeights::kept,
       .since = 19},
      m.features);
    v({.name = "linear_normalised",
       .help = "linear_attention: divide by the sum of similarities, which must be positive",
       .derived = "true (false with identity, unit and near_unit)",
       .weights = WithWeights::kept,
       .since = 19},
      m.normalised);
  }
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const LinearAttentionMixer&) const = default;
};

// The delta rule (nn/fast_weights.h; Schlag et al. 2021).
struct DeltaRuleMixer {
  static constexpr const char* kName = "delta_rule";
  static constexpr const char* kPart = "fast_weights";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = true;

  int64_t heads = 4;
  FeatureMap features = FeatureMap::shares;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "delta_heads",
       .help = "delta_rule: heads, each with a matrix",
       .weights = WithWeights::kept,
       .since = 19},
      m.heads, Integers{1, 1024});
    v({.name = "delta_features",
       .help = "delta_rule: map of queries and keys (as linear_features)",
       .weights = WithWeights::kept,
       .since = 19},
      m.features);
  }
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const DeltaRuleMixer&) const = default;
};

}  // namespace qkv

// Attention by random features as a mixer: RFA and Performer.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/models/spec_field.h"
#include "qkv/nn/random_feature_spec.h"

namespace qkv {

// Random feature attention (nn/random_feature_attention.h; Peng et al. 2021; Choromanski et al. 2021).
struct RandomFeaturesMixer : RandomFeatureSpec {
  static constexpr const char* kName = "random_features";
  static constexpr const char* kPart = "random_features";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = false;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "random_heads", .help = "random_features: heads", .weights = WithWeights::kept, .since = 22},
      m.heads, Integers{1, 1024});
    v({.name = "random_count",
       .help = "random_features: random vectors of a head: more of them come closer to softmax attention",
       .derived = "2 width / random_heads",
       .weights = WithWeights::kept,
       .since = 22},
      m.count, Integers{0, 65536});
    v({.name = "random_map",
       .help = "random_features: fourier (cosines and sines: RFA) or positive (exponentials: Performer)",
       .weights = WithWeights::kept,
       .since = 22},
      m.map);
    v({.name = "random_orthogonal",
       .help = "random_features: vectors are orthogonal, by Gram-Schmidt (Performer)",
       .since = 22},
      m.orthogonal);
    v({.name = "random_redraw",
       .help = "random_features: steps of training after which the vectors are drawn anew (0: never)",
       .since = 22},
      m.redraw, Integers{0, int64_t{1} << 40});
    v({.name = "random_gated",
       .help = "random_features: what was read fades by a gate of each head (RFA's gated variant)",
       .weights = WithWeights::kept,
       .since = 22},
      m.gated);
    v({.name = "random_unit",
       .help = "random_features: queries and keys of length 1 with a learned factor of each column, divisors "
               "of at least 1 (the code that Peng et al. published); with fourier",
       .weights = WithWeights::kept,
       .since = 24},
      m.unit);
    v({.name = "random_epsilon",
       .help =
           "random_features: added to each feature, whose exponents start from the text's largest; 1e-4 in "
           "published code; with positive, in encoders (0: nothing)",
       .weights = WithWeights::kept,
       .since = 24},
      m.epsilon, Numbers{0, 1});
  }
  void derive(int64_t width);
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const RandomFeaturesMixer&) const = default;
};

}  // namespace qkv

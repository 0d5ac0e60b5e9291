// Self-attention as a mixer.
#pragma once

#include "qkv/models/mixers/mixer.h"

namespace qkv {

// Algorithm 5 of Phuong & Hutter with Z = X; what it is, ModelSpec::attention says.
struct AttentionMixer {
  static constexpr const char* kName = "attention";
  static constexpr const char* kPart = "attention";
  static constexpr bool kAttends = true;
  static constexpr bool kKnowsOrder = false;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& /*mixer*/, Visitor& /*v*/) {}
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const AttentionMixer&) const = default;
};

// The cost of attention to a source of rows `width` wide.
MixerCost cross_attention_cost(const ModelSpec& spec);

}  // namespace qkv

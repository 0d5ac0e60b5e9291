// The mean of what came before, as a mixer.
#pragma once

#include "qkv/models/mixers/mixer.h"

namespace qkv {

// nn/average.h (Zhang et al. 2018).
struct AverageMixer {
  static constexpr const char* kName = "average";
  static constexpr const char* kPart = "average";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = false;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& /*mixer*/, Visitor& /*v*/) {}
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const AverageMixer&) const = default;
};

}  // namespace qkv

// The attention-free transformer as a mixer.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/models/spec_field.h"
#include "qkv/nn/attention_free_spec.h"

namespace qkv {

// AFT (nn/attention_free.h; Zhai et al. 2021).
struct AttentionFreeMixer : AftSpec {
  static constexpr const char* kName = "attention_free";
  static constexpr const char* kPart = "attention_free";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = false;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& m, Visitor& v) {
    v({.name = "aft_form",
       .help =
           "attention_free: weights of pairs of positions: full, local (within aft_window), simple (none) or "
           "conv (by distance within aft_window)",
       .weights = WithWeights::kept,
       .since = 23},
      m.form);
    v({.name = "aft_window",
       .help = "attention_free, local and conv: keys farther than this have the weight 0",
       .weights = WithWeights::kept,
       .since = 23},
      m.window, Integers{1, 1 << 20});
    v({.name = "aft_rank",
       .help = "attention_free, full and local: weights are products of vectors of this size (0: a table)",
       .weights = WithWeights::kept,
       .since = 23},
      m.rank, Integers{0, 4096});
    v({.name = "aft_heads", .help = "attention_free, conv: heads", .weights = WithWeights::kept, .since = 23},
      m.heads, Integers{1, 1024});
  }
  // True if weights are of positions, of which there are `context`.
  bool by_position() const { return form == AftForm::full || form == AftForm::local; }
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const AttentionFreeMixer&) const = default;
};

}  // namespace qkv

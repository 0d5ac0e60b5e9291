#include "qkv/models/mixers/attention_free.h"
#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/spec.h"
#include "qkv/nn/attention_free.h"

namespace qkv {

void AttentionFreeMixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, false);
  if (form == AftForm::conv) check_heads(s, kName, heads, "aft_heads");
  qkv::check(rank == 0 || by_position(), "model: aft_rank is for aft_form full and local");
}

std::unique_ptr<Sublayer> AttentionFreeMixer::make(const MixerPlace& p) const {
  if (form == AftForm::simple && p.mask.is_causal())
    return std::make_unique<SimpleAttentionFree>(p.parameters, p.name, p.spec.width, p.std);
  return std::make_unique<AttentionFree>(p.parameters, p.name, *this, p.spec.width, p.spec.context,
                                         p.mask.is_causal(), p.std);
}

// Kept: q and its sigmoid, k, v, y and their product; the logarithm of its divisors.
MixerCost AttentionFreeMixer::cost(const ModelSpec& s, bool causal) const {
  const int64_t d = s.width;
  MixerCost cost{.projected = 5 * d, .out = d, .kept_f32 = d, .multiplications = 4 * d * d};
  if (form == AftForm::simple && causal) {
    cost.state = 2 * 3 * d + 2 * ReplayedState::kKept * 2 * d;
    return cost;
  }
  if (by_position()) cost.per_key = 2 * d;
  cost.remembered = 2 * d;
  return cost;
}

}  // namespace qkv

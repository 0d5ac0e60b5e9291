#include "qkv/models/mixers/gated_delta.h"
#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/spec.h"
#include "qkv/nn/gated_delta.h"

namespace qkv {

void GatedDeltaMixer::derive(int64_t width) {
  if (key_heads == 0) key_heads = heads;
  if (d_k == 0) d_k = width / heads;
  if (d_v == 0) d_v = width / heads;
}

void GatedDeltaMixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, true);
  qkv::check(key_heads > 0 && heads % key_heads == 0,
             "model: gated_delta_heads: {} heads cannot share the keys of {} (gated_delta_key_heads)", heads,
             key_heads);
  qkv::check(d_k > 0 && d_v > 0,
             "model: gated_delta_key_width and gated_delta_value_width: expected numbers above 0, got {} and "
             "{}",
             d_k, d_v);
}

std::unique_ptr<Sublayer> GatedDeltaMixer::make(const MixerPlace& p) const {
  return std::make_unique<GatedDeltaNet>(p.parameters, p.name, *this, p.spec.width, p.spec.norm_epsilon,
                                         p.std);
}

// Kept: what is projected, the same cut and convolved and mapped, y, its norm and the gate; a state for every
// 32 tokens.
MixerCost GatedDeltaMixer::cost(const ModelSpec& s, bool /*causal*/) const {
  const int64_t keys = key_heads * d_k, values = heads * d_v, mixed = 2 * keys + values,
                state = heads * d_k * d_v, inputs = mixed + 2 * heads;
  return {.projected = inputs + values + 4 * mixed + 2 * keys + 5 * values,
          .out = values,
          .kept_f32 = state / 32 + 5 * heads,
          .again_f32 = mixed,
          .multiplications = (inputs + 2 * values) * s.width + kernel * mixed + 3 * state,
          .state = 2 * (state + (kernel - 1) * mixed) + 2 * ReplayedState::kKept * inputs};
}

}  // namespace qkv

#include "qkv/models/mixers/fast_weights.h"
#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/spec.h"
#include "qkv/nn/fast_weights.h"

namespace qkv {
namespace {

FastWeightsSpec spec_of(const LinearAttentionMixer& m) {
  return {.heads = m.heads, .features = m.features, .normalised = m.normalised};
}
FastWeightsSpec spec_of(const DeltaRuleMixer& m) {
  return {.heads = m.heads, .features = m.features, .normalised = false, .delta = true};
}

template <typename M>
std::unique_ptr<Sublayer> make_layer(const M& m, const MixerPlace& p) {
  FastWeightsSpec spec = spec_of(m);
  spec.causal = p.mask.is_causal();
  return std::make_unique<FastWeightsLayer>(p.parameters, p.name, spec, p.spec.width, p.std);
}

// Kept: what it reads, q and k before and after their map, v, y; in f32 a state for every 32 tokens.
MixerCost cost_of(const FastWeightsSpec& f, int64_t d) {
  const int64_t head = d / f.heads, state = d * (head + (f.normalised ? 1 : 0));
  return {.projected = 3 * d + (f.features == FeatureMap::identity ? 0 : 2 * d),
          .out = d,
          .kept_f32 = state / 32 + (f.delta ? 2 * f.heads : 0),
          .again_f32 = 3 * d,
          .multiplications = 4 * d * d + (f.delta ? d * f.heads : 0) + (f.delta ? 3 : 2) * state,
          .state = 2 * state + 2 * ReplayedState::kKept * (2 * d + (f.delta ? f.heads : 0))};
}

}  // namespace

void LinearAttentionMixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, false);
  check_heads(s, kName, heads, "linear_heads");
  qkv::check(
      !normalised || !may_be_negative(features),
      "model: linear_normalised: similarities of linear_features {} may be negative, so it must be false",
      name_of(features));
}
std::unique_ptr<Sublayer> LinearAttentionMixer::make(const MixerPlace& p) const {
  return make_layer(*this, p);
}
MixerCost LinearAttentionMixer::cost(const ModelSpec& s, bool /*causal*/) const {
  return cost_of(spec_of(*this), s.width);
}

void DeltaRuleMixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, true);
  check_heads(s, kName, heads, "delta_heads");
}
std::unique_ptr<Sublayer> DeltaRuleMixer::make(const MixerPlace& p) const {
  return make_layer(*this, p);
}
MixerCost DeltaRuleMixer::cost(const ModelSpec& s, bool /*causal*/) const {
  return cost_of(spec_of(*this), s.width);
}

}  // namespace qkv

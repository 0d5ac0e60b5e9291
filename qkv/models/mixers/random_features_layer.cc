#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/mixers/random_features.h"
#include "qkv/models/spec.h"
#include "qkv/nn/random_feature_attention.h"

namespace qkv {

void RandomFeaturesMixer::derive(int64_t width) {
  if (count == 0) count = 2 * width / heads;
}

void RandomFeaturesMixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, gated);
  check_heads(s, kName, heads, "random_heads");
  qkv::check(!unit || (map == RandomMap::fourier && !gated),
             "model: random_unit goes with random_map fourier, and without random_gated");
  qkv::check(
      epsilon == 0 || (map == RandomMap::positive && s.architecture == Architecture::encoder),
      "model: random_epsilon goes with random_map positive, in encoders: it reads the largest feature of "
      "the whole text");
  qkv::check(count > 0, "model: random_count: expected a number above 0, got {}", count);
}

std::unique_ptr<Sublayer> RandomFeaturesMixer::make(const MixerPlace& p) const {
  return std::make_unique<RandomFeatureAttention>(p.parameters, p.name, *this, p.spec.width,
                                                  p.mask.is_causal(), p.site, p.std);
}

// Kept: q, k and v; in f32 q and k again, their products with the vectors, their features apart, together
// and apart again, factors, y, and a state for every 32 tokens.
MixerCost RandomFeaturesMixer::cost(const ModelSpec& s, bool /*causal*/) const {
  const int64_t d = s.width, products = heads * count,
                features = products * (map == RandomMap::fourier ? 2 : 1),
                state = features * (d / heads + 1) + heads, inputs = 2 * features + d + 2 * heads;
  return {.projected = 4 * d,
          .out = d,
          .kept_f32 = (unit ? 7 : 5) * d + 2 * products + 4 * inputs + features + state / 32,
          .again_f32 = inputs,
          .multiplications = 4 * d * d + 2 * count * d + 2 * state,
          .state = 2 * state + 2 * ReplayedState::kKept * inputs};
}

}  // namespace qkv

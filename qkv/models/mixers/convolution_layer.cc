#include "qkv/models/mixers/convolution.h"
#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/spec.h"
#include "qkv/nn/convolution.h"

namespace qkv {

void ConvolutionMixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, true);
}

std::unique_ptr<Sublayer> ConvolutionMixer::make(const MixerPlace& p) const {
  return std::make_unique<GatedConvolution>(p.parameters, p.name, *this, p.spec.width, p.std);
}

// Kept: b, c and x together, in pairs before their products, and the products.
MixerCost ConvolutionMixer::cost(const ModelSpec& s, bool /*causal*/) const {
  const int64_t d = s.width;
  return {.projected = 8 * d,
          .out = d,
          .multiplications = 4 * d * d + kernel * d,
          .state = 2 * (kernel - 1) * d + 2 * ReplayedState::kKept * d};
}

}  // namespace qkv

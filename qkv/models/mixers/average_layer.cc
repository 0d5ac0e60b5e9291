#include "qkv/models/mixers/average.h"
#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/spec.h"
#include "qkv/nn/average.h"

namespace qkv {

void AverageMixer::check(const ModelSpec& s) const {
  qkv::check(s.architecture == Architecture::decoder && s.order == Order::stack,
             "model: mixer average: of a decoder that reads in order, not of {} with order {}",
             name_of(s.architecture), name_of(s.order));
}

std::unique_ptr<Sublayer> AverageMixer::make(const MixerPlace& p) const {
  return std::make_unique<Average>(p.parameters, p.name, p.spec.width, p.std);
}

// Kept: what it reads and the means.
MixerCost AverageMixer::cost(const ModelSpec& s, bool /*causal*/) const {
  return {.out = s.width,
          .multiplications = 2 * s.width * s.width,
          .state = (RecurrentState::kKept + 1) * s.width};
}

}  // namespace qkv

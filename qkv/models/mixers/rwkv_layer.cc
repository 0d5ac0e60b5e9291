#include <algorithm>
#include <cmath>
#include <utility>

#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/mixers/rwkv.h"
#include "qkv/models/spec.h"
#include "qkv/nn/rwkv.h"

namespace qkv {

void Rwkv4Mixer::derive(int64_t width) {
  if (inner == 0) inner = width;
}

void Rwkv4Mixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, true);
  qkv::check(inner > 0, "model: rwkv4_inner: expected a number above 0, got {}", inner);
}

std::unique_ptr<Sublayer> Rwkv4Mixer::make(const MixerPlace& p) const {
  return std::make_unique<Rwkv4>(p.parameters, p.name, *this, p.spec.width, p.std);
}

// Kept: the rows before, three mixed rows; k and v apart, together and apart again, r and its sigmoid, y; in
// f32 a state for every 32 tokens.
MixerCost Rwkv4Mixer::cost(const ModelSpec& s, bool /*causal*/) const {
  return {.projected = 4 * s.width + 9 * inner,
          .out = inner,
          .kept_f32 = 3 * inner / 32,
          .again_f32 = 2 * inner,
          .multiplications = 4 * inner * s.width + 8 * inner,
          .state = 2 * (3 * inner + s.width) + 2 * ReplayedState::kKept * (2 * inner + s.width)};
}

void Rwkv7Mixer::derive(int64_t width) {
  const auto w = static_cast<double>(width);
  const auto rank = [](double numbers) {
    constexpr int64_t kStep = 32;
    return std::max<int64_t>(kStep, std::lround(numbers / kStep) * kStep);
  };
  if (heads == 0) heads = std::max<int64_t>(1, width / 64);
  if (decay_rank == 0) decay_rank = rank(1.8 * std::sqrt(w));
  if (rate_rank == 0) rate_rank = decay_rank;
  if (value_rank == 0) value_rank = rank(1.3 * std::sqrt(w));
  if (gate_rank == 0) gate_rank = rank(0.6 * std::pow(w, 0.8));
}

void Rwkv7Mixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, true);
  qkv::check(heads > 0 && s.width % heads == 0, "model: rwkv7_heads: width {} is not divisible by {} heads",
             s.width, heads);
  for (const auto& [key, rank] :
       {std::pair("decay", decay_rank), {"rate", rate_rank}, {"value", value_rank}, {"gate", gate_rank}})
    qkv::check(rank > 0, "model: rwkv7_{}_rank: expected a number above 0, got {}", key, rank);
  qkv::check(s.layer_groups == 0 && !s.mtp.any(),
             "model: mixer rwkv7 does not go with layer_groups or mtp_layers");
}

std::unique_ptr<Sublayer> Rwkv7Mixer::make(const MixerPlace& p) const {
  return std::make_unique<Rwkv7>(p.parameters, p.name, *this, p.spec.width, p.layer == 0, p.std);
}

// Kept: the rows before and six mixed ones; what is projected, its activations and products; the inputs of a
// token together, which grow by one at a time, and apart; y, its norm and the gate; in f32 decays and a state
// for every 32 tokens.
MixerCost Rwkv7Mixer::cost(const ModelSpec& s, bool /*causal*/) const {
  const int64_t d = s.width, state = d * (d / heads), ranks = decay_rank + rate_rank + value_rank + gate_rank;
  return {.projected = 7 * d + 14 * d + 20 * d + 8 * d + 6 * d + 2 * ranks,
          .out = d,
          .kept_f32 = 3 * d + state / 32 + heads,
          .again_f32 = 6 * d,
          .multiplications = 4 * d * d + 2 * d * ranks + 5 * state,
          .state = 2 * (state + d) + 2 * ReplayedState::kKept * 7 * d};
}

}  // namespace qkv

#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/mixers/state_space.h"
#include "qkv/models/spec.h"
#include "qkv/nn/state_space.h"

namespace qkv {

void MambaMixer::derive(int64_t width) {
  if (inner == 0) inner = 2 * width;
  if (rank == 0) rank = (width + 15) / 16;
}

void MambaMixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, true);
  qkv::check(inner > 0, "model: mamba_inner: expected a number above 0, got {}", inner);
  qkv::check(rank > 0, "model: mamba_rank: expected a number above 0, got {}", rank);
}

std::unique_ptr<Sublayer> MambaMixer::make(const MixerPlace& p) const {
  return std::make_unique<Mamba>(p.parameters, p.name, *this, p.spec.width, p.spec.norm_epsilon, p.std);
}

// Kept: x and gate together and apart, u and what it is made of, the inputs of a token together and apart, y
// with the gate; steps and a state for every 32 tokens.
MixerCost MambaMixer::cost(const ModelSpec& s, bool /*causal*/) const {
  const int64_t selected = rank + 2 * state, inputs = 3 * inner + 2 * state;
  return {.projected = 14 * inner + 3 * selected + 2 * inputs,
          .out = inner,
          .kept_f32 = inner + inner * state / 32,
          .again_f32 = 2 * inner,
          .multiplications = 3 * inner * s.width + inner * (selected + rank + kernel) + 3 * inner * state,
          .state = 2 * inner * (state + kernel - 1) + 2 * ReplayedState::kKept * inputs};
}

void Mamba2Mixer::derive(int64_t width) {
  if (heads == 0) heads = 2 * width / head_width;
}

void Mamba2Mixer::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, true);
  qkv::check(heads > 0, "model: mamba2_heads: expected a number above 0, got {} (mamba2_head_width is {})",
             heads, head_width);
  qkv::check(heads % groups == 0, "model: mamba2_groups: {} groups do not divide {} heads", groups, heads);
  qkv::check(step_high == 0 || step_low < step_high,
             "model: mamba2_step_low: expected less than mamba2_step_high, {}, got {}", step_high, step_low);
}

std::unique_ptr<Sublayer> Mamba2Mixer::make(const MixerPlace& p) const {
  return std::make_unique<Mamba2>(p.parameters, p.name, *this, p.spec.width, p.spec.norm_epsilon, p.std);
}

// Kept: what is projected, the same cut and convolved, x with its steps, y with the gate and its norm; a
// state for every 32 tokens.
MixerCost Mamba2Mixer::cost(const ModelSpec& s, bool /*causal*/) const {
  const int64_t inner = heads * head_width, mixed = inner + 2 * groups * state, inputs = mixed + heads;
  return {.projected = inner + inputs + 4 * mixed + 9 * inner,
          .out = inner,
          .kept_f32 = inner * state / 32 + 3 * heads,
          .again_f32 = 2 * mixed,
          .multiplications = (2 * inner + inputs) * s.width + kernel * mixed + 2 * inner * state,
          .state = 2 * (inner * state + (kernel - 1) * mixed) + 2 * ReplayedState::kKept * inputs};
}

}  // namespace qkv

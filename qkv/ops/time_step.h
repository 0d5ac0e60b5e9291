// The steps of state-space models and of gated delta rules, and the decay that follows from them.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

// softplus(x + bias), within [low, high]: x [N, H] of any floating type, bias f32 [H] -> f32 [N, H]. Steps
// that are cut off have no gradient (Gu & Dao 2023, section 3.6).
Tensor time_steps(const Tensor& x, const Tensor& bias, float low, float high);

// The logarithm of what a state keeps over each step: -exp(log_rates) steps. steps f32 [N, H], log_rates f32
// [H] -> f32 [N, H].
Tensor log_decays(const Tensor& steps, const Tensor& log_rates);

}  // namespace qkv

// Losses of scores against numbers: labels that apply or not, and regression.
#pragma once

#include <cstdint>

#include "qkv/tensor/tensor.h"

namespace qkv {

// A loss over the scores of sequences.
struct ScoreLoss {
  Tensor loss;        // f32 [1]: scale times the sum of the sequences' losses
  double total = 0;   // their sum
  int64_t count = 0;  // sequences
};

// scores, targets f32 [S, C]. A sequence's loss is the mean over its C scores z of -log P of whether the
// label applies: log(1 + e^z) - t z, with P = sigmoid(z) and t in [0, 1] (binary cross-entropy).
ScoreLoss binary_cross_entropy(const Tensor& scores, const Tensor& targets, float scale);

// The same with (z - t)^2, of any t.
ScoreLoss squared_error(const Tensor& scores, const Tensor& targets, float scale);

}  // namespace qkv

// The options of attention by random features (nn/random_feature_attention.h).
#pragma once

#include <cstdint>

#include "qkv/ops/random_features_spec.h"

namespace qkv {

struct RandomFeatureSpec {
  int64_t heads = 4;
  int64_t count = 0;  // random vectors of a head
  RandomMap map = RandomMap::positive;
  bool orthogonal = true;
  int64_t redraw = 0;  // steps of training after which they are drawn anew; 0: never
  bool gated = false;  // earlier tokens fade by a gate of each head
  // Queries and keys are divided by their lengths, each column then has a learned factor, and a divisor is at
  // least 1 (Peng et al.'s published code). Fourier only.
  bool unit = false;
  // Added to each feature, whose exponents are taken from the largest of the sequence (Performer's published
  // code). Positive features and both directions only; 0: off.
  float epsilon = 0;

  bool operator==(const RandomFeatureSpec&) const = default;
};

}  // namespace qkv

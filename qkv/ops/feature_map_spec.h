// The maps of linear attention (ops/feature_map.h).
#pragma once

#include <cstdint>

namespace qkv {

enum class FeatureMap : uint8_t {
  identity,   // x
  elu,        // elu(x) + 1 (Katharopoulos et al. 2020)
  relu,       // max(x, 0)
  shares,     // elu(x) + 1, divided by its sum over the head (Schlag et al. 2021)
  unit,       // x / sqrt(|x|^2 + 1e-6), |x| over the head (Yang et al. 2024)
  near_unit,  // x / (|x| + 1e-3) (Peng et al. 2021, their published code)
};

// True if products of features may be negative, so that their sum is nothing to divide by.
inline bool may_be_negative(FeatureMap kind) {
  return kind == FeatureMap::identity || kind == FeatureMap::unit || kind == FeatureMap::near_unit;
}

}  // namespace qkv

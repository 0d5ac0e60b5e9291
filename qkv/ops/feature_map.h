// Maps of the queries and keys of linear attention: their dot products are its similarities.
#pragma once

#include "qkv/tensor/tensor.h"

namespace qkv {

enum class FeatureMap : uint8_t {
  identity,  // x
  elu,       // elu(x) + 1 (Katharopoulos et al. 2020)
  relu,      // max(x, 0)
  shares,    // elu(x) + 1, divided by its sum over the head (Schlag et al. 2021)
  unit,      // x / sqrt(|x|^2 + 1e-6), |x| over the head (Yang et al. 2024)
};

// Maps each head of x [N, heads d]. Throws Error if the heads do not fit.
Tensor feature_map(FeatureMap kind, const Tensor& x, int64_t heads);

}  // namespace qkv

// Maps of the queries and keys of linear attention: their dot products are its similarities.
#pragma once

#include "qkv/ops/feature_map_spec.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// Maps each head of x [N, heads d]. Throws Error if the heads do not fit.
Tensor feature_map(FeatureMap kind, const Tensor& x, int64_t heads);

}  // namespace qkv

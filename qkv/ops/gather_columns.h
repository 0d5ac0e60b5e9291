// Reorders columns, with columns of zeros between them.
#pragma once

#include <memory>
#include <vector>

#include "qkv/tensor/tensor.h"

namespace qkv {

// The origins of a result's columns: column j is factor[j] times column source[j] of x, or 0 if source[j]
// is -1. No column is taken twice.
struct ColumnMap {
  int64_t from = 0;  // columns of x
  std::vector<int32_t> source;
  std::vector<float> factor;

  int64_t size() const { return std::ssize(source); }
};

// x [N, map.from] -> [N, map.size()].
Tensor gather_columns(const Tensor& x, const std::shared_ptr<const ColumnMap>& map);

}  // namespace qkv

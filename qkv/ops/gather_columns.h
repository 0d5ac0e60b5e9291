// Columns put into another order, with room between them.
#pragma once

#include <memory>
#include <vector>

#include "qkv/tensor/tensor.h"

namespace qkv {

// Where the columns of a result come from: column j is factor[j] times column source[j], or 0 where that
// is -1. No column is taken twice.
struct ColumnMap {
  int64_t from = 0;  // columns there are
  std::vector<int32_t> source;
  std::vector<float> factor;

  int64_t size() const { return std::ssize(source); }
};

// x [N, map.from] -> [N, map.size()].
Tensor gather_columns(const Tensor& x, const std::shared_ptr<const ColumnMap>& map);

}  // namespace qkv

#include "qkv/ops/grid.h"

#include <vector>

#include "qkv/ops/dispatch.h"

namespace qkv {

Tensor grid_positions(const Tensor& positions, int64_t columns) {
  check(columns > 0, "grid_positions: columns must be positive, got {}", columns);
  expect_dtype("grid_positions", "positions", positions, DType::i32);
  std::vector<int32_t> out;
  for (const int32_t p : positions.values<int32_t>()) {
    out.push_back(static_cast<int32_t>(p / columns));
    out.push_back(static_cast<int32_t>(p % columns));
  }
  return Tensor::of({positions.count(), 2}, out);
}

}  // namespace qkv

#include "qkv/ops/grid.h"

#include <utility>
#include <vector>

#include "qkv/base/error.h"

namespace qkv {

Indices grid_positions(const Indices& positions, int64_t columns) {
  check(columns > 0, "grid_positions: columns must be positive, got {}", columns);
  std::vector<int32_t> out;
  for (const int32_t p : positions.values()) {
    out.push_back(static_cast<int32_t>(p / columns));
    out.push_back(static_cast<int32_t>(p % columns));
  }
  return {std::move(out), 2};
}

}  // namespace qkv

// How much the columns of a matrix count.
#pragma once

#include <cstdint>
#include <vector>

namespace qkv {

// For rows [first_row, first_row + rows) of a parameter, a layer's own or an expert's: the mean of the
// squares of the activations that meet each column.
struct ColumnImportance {
  int64_t first_row = 0, rows = 0;
  std::vector<float> columns;
};

}  // namespace qkv

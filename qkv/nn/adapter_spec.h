// The options of a low-rank adapter (nn/adapter.h).
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

// A low-rank adapter of rows [first_row, first_row + rows) of a weight [out, in] (Hu et al. 2022, LoRA):
// W x becomes W x + scale B A x, with A [rank, in] and B [rows, rank].
struct AdapterSpec {
  std::string parameter;  // the weight's name
  int64_t first_row = 0, rows = 0;
  int64_t rank = 0;
  float scale = 1;
  float dropout = 0;  // dropout rate of A's input

  bool operator==(const AdapterSpec&) const = default;
};

}  // namespace qkv

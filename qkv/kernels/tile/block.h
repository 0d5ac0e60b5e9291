// Products of small blocks that one thread multiplies by tiles in the midst of other work, as attention has
// them. Like share.h, a border that only plain data and functions cross.
#pragma once

#include <cstdint>

#include "qkv/kernels/tile_product.h"

namespace qkv::tile {

// C[m, n] = A[m, k] B[k, n], added to C when `accumulate`. m, n and k are multiples of 32.
struct BlockProduct {
  int64_t m, n, k;
  const BFloat16* a;  // [m, k]
  int64_t a_stride;   // elements between rows
  const BFloat16* b;  // [k / 2, n, 2]: elements 2p and 2p + 1 of k side by side, as tiles want them
  int64_t b_stride;
  float* c;  // [m, n]
  int64_t c_stride;
  bool accumulate;
};

// Before the thread's first block and after its last one. Between the two it must not run other users of
// tiles.
void configure_amx();
void release_amx();
void multiply_block_amx(const BlockProduct&);

// Needs no configuration.
void multiply_block_emulated(const BlockProduct&);

}  // namespace qkv::tile

// Products of bf16 matrices with the processor's tile instructions (AMX), faster than oneDNN's for the
// shapes of training and of long prompts. matrix_product() (gemm.h) decides when to use them.
#pragma once

#include <cstdint>

#include "qkv/kernels/gemm.h"

namespace qkv {

// The unit that computes with tiles: the processor, or plain loops that follow the definition of its
// instructions. The latter is for tests. All other code is shared, so both need AVX-512.
enum class TileUnit { amx, emulated };

// True if this processor, the operating system and QKV_MAX_ISA allow it. For `amx` the first call also runs
// a small product with a known result, to detect processors that report tiles but lack them.
bool tiles_available(TileUnit);
// The same of tiles of bytes (tile/groups.h).
bool byte_tiles_available(TileUnit);

// How a product is cut into blocks. Sizes are in elements, rounded up to multiples of 32. The bits of the
// result do not depend on them.
struct TileBlocking {
  int64_t rows, columns, depth;                // block of C (rows, columns) and k (depth) that stays cached
  int64_t packed_bytes = int64_t{128} << 20;   // bytes of B packed at a time
  int64_t resident_bytes = int64_t{16} << 20;  // bytes of A: a block of rows stays packed if its k fits
  bool stream = false;                         // writes of C bypass the caches
};
TileBlocking tile_blocking(const Product&);

// True if tiles are available and make a product of this shape faster.
bool tile_product_takes(const Product&);

// REQUIRES: tiles_available(unit), bf16 inputs, m, n and k >= 1. Uses all threads; the bits do not depend on
// how many.
void tile_product(const Product&, TileUnit, const TileBlocking&);

}  // namespace qkv

// Products of bf16 matrices with the processor's tile instructions (AMX), faster than oneDNN's for the shapes
// of training and of long prompts. matrix_product() (gemm.h) decides when.
#pragma once

#include <cstdint>

#include "qkv/kernels/gemm.h"

namespace qkv {

// What computes with tiles: the processor, or plain loops that do what its instructions are defined to do.
// The second is for tests; all else is the same code, so either needs AVX-512.
enum class TileUnit { amx, emulated };

// Whether this processor, the operating system and QKV_MAX_ISA allow it. For `amx` the first call also runs a
// small product with a known result, so that a processor that promises tiles and lacks them is found out.
bool tiles_available(TileUnit);

// How a product is cut. Blocks are counted in elements and rounded up to multiples of 32. The result's bits
// do not depend on it.
struct TileBlocking {
  int64_t rows, columns, depth;                // of C, of C, of k: what is worked on while it is cached
  int64_t packed_bytes = int64_t{128} << 20;   // of B, packed at a time
  int64_t resident_bytes = int64_t{16} << 20;  // of A: a block of rows stays packed if its k fits
  bool stream = false;                         // C is written past the caches
};
TileBlocking tile_blocking(const Product&);

// True where tiles are available and the shape is one that gains by them.
bool tile_product_takes(const Product&);

// REQUIRES: tiles_available(unit), bf16 inputs, m, n and k >= 1. Uses all threads; the bits do not depend on
// how many.
void tile_product(const Product&, TileUnit, const TileBlocking&);

}  // namespace qkv

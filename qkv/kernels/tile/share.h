// One thread's share of a product of tiles. The border between code for every processor and share.cc, which
// alone is compiled for AVX-512 and AMX: only plain data and functions cross it, and nothing beyond it may
// run before tiles_available() has said so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/kernels/tile_product.h"

namespace qkv::tile {

// Rows of A, or columns of B, that are packed together; and how many elements of k make a step: a row of a
// tile is 64 bytes.
inline constexpr int64_t kPanel = 32;
// A packed panel is a run of steps, each of two tiles of 16 x 64 bytes.
inline constexpr int64_t kStepElements = kPanel * kPanel;

struct Range {
  int64_t begin, end;
};

// Panels of `extent` rows or columns, or steps of `extent` elements of k. Static: share.cc keeps its own.
static constexpr int64_t panels(int64_t extent) {
  return (extent + kPanel - 1) / kPanel;
}

// B's steps [steps.begin, steps.end) of all panels, into packed [panels(n), panels(k), kStepElements], which
// is 64-byte aligned. What lies beyond n and k is zero.
void pack_b(const Product&, Range steps, BFloat16* packed);

struct Share {
  Product product;           // of this share's rows and columns
  const BFloat16* packed_b;  // their panels
  TileBlocking blocking;
  std::byte* scratch;  // scratch_bytes(product, blocking), 64-byte aligned
};
int64_t scratch_bytes(const Product&, const TileBlocking&);  // a multiple of 64

// C of the share. Leaves no state in the thread's tile registers.
void multiply_amx(const Share&);
void multiply_emulated(const Share&);

}  // namespace qkv::tile

// One thread's share of a product on tiles. This is the border between code for every processor and
// share.cc, which (like block.cc) is compiled for AVX-512 and AMX. Only plain data and functions cross it,
// and nothing beyond it may run unless tiles_available().
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/kernels/tile_product.h"

namespace qkv::tile {

// Rows of A or columns of B that are packed together, and elements of k in a step: a row of a tile is 64
// bytes.
inline constexpr int64_t kPanel = 32;
// A packed panel is a run of steps, each of two tiles of 16 x 64 bytes.
inline constexpr int64_t kStepElements = kPanel * kPanel;

struct Range {
  int64_t begin, end;
};

// Number of panels of `extent` rows or columns, or of steps of `extent` elements of k. Static, so that
// share.cc has its own copy.
static constexpr int64_t panels(int64_t extent) {
  return (extent + kPanel - 1) / kPanel;
}

// Packs B's steps [steps.begin, steps.end) of all panels into packed [panels(n), panels(k), kStepElements],
// which is 64-byte aligned. Elements beyond n and k become zero.
void pack_b(const Product&, Range steps, BFloat16* packed);

struct Share {
  Product product;           // restricted to this share's rows and columns
  const BFloat16* packed_b;  // panels of these columns
  TileBlocking blocking;
  std::byte* scratch;  // scratch_bytes(product, blocking), 64-byte aligned
};
int64_t scratch_bytes(const Product&, const TileBlocking&);  // a multiple of 64

// Compute C of the share. They leave no state in the thread's tile registers.
void multiply_amx(const Share&);
void multiply_emulated(const Share&);

}  // namespace qkv::tile

// Compiled for AVX-512 and AMX, as share.cc is, and under the same rules.
#include "qkv/kernels/tile/block.h"

#ifdef __x86_64__

#include "qkv/kernels/tile/tiles-inl.h"

namespace qkv::tile {
namespace {

constexpr int64_t kBlock = 2 * kTileRows;

template <typename Tiles>
void multiply_block(const BlockProduct& p, Tiles& tiles) {
  const int64_t a_bytes = p.a_stride * 2, b_bytes = p.b_stride * 2;
  for (int64_t column = 0; column < p.n; column += kBlock)
    for (int64_t row = 0; row < p.m; row += kBlock) {
      float* c = p.c + row * p.c_stride + column;
      if (p.accumulate)
        tiles.load_sums(c, p.c_stride);
      else
        tiles.zero_sums();
      for (int64_t k = 0; k < p.k; k += kBlock) {
        const BFloat16 *a = p.a + row * p.a_stride + k, *b = p.b + k / 2 * p.b_stride + column * 2;
        tiles.load_b0(b, b_bytes);
        tiles.load_a0(a, a_bytes);
        tiles.multiply_00();
        tiles.load_b1(b + kBlock, b_bytes);
        tiles.multiply_01();
        tiles.load_a1(a + kTileRows * p.a_stride, a_bytes);
        tiles.multiply_10();
        tiles.multiply_11();
      }
      tiles.store_sums(c, p.c_stride);
    }
}

}  // namespace

void configure_amx() {
  AmxTiles::configure();
}
void release_amx() {
  AmxTiles::release();
}
void multiply_block_amx(const BlockProduct& p) {
  AmxTiles tiles;
  multiply_block(p, tiles);
}
void multiply_block_emulated(const BlockProduct& p) {
  EmulatedTiles tiles;
  tiles.configure();
  multiply_block(p, tiles);
}

}  // namespace qkv::tile

#else  // never called: tiles_available() is false

namespace qkv::tile {
void configure_amx() {}
void release_amx() {}
void multiply_block_amx(const BlockProduct&) {}
void multiply_block_emulated(const BlockProduct&) {}
}  // namespace qkv::tile

#endif

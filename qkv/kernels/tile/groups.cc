// Compiled for AVX-512 and AMX, as share.cc is, and under the same rules.
#include "qkv/kernels/tile/groups.h"

#ifdef __x86_64__

#include "qkv/kernels/tile/tiles-inl.h"

namespace qkv::tile {

// Tiles 0 and 1 hold sums [16, 16]; 4 holds rows of A, 32 bytes of each; 6 and 7 hold columns of B, eight
// lines of 16 x 4 bytes.
void configure_groups_amx() {
  TileConfiguration configuration;
  for (const int sums : {0, 1}) configuration.set(sums, kTileRows, 64);
  configuration.set(4, kTileRows, kGroupElements);
  for (const int columns : {6, 7}) configuration.set(columns, kGroupElements / 4, 64);
  configuration.load();
}

void sum_groups_amx(const GroupSums& p) {
  AmxTiles::finish_stores();
  for (int64_t g = 0; g < p.groups; ++g) {
    const uint8_t* b = p.b + g * (kGroupElements / 4) * p.b_stride;
    int32_t* sums = p.sums + g * kGroupRows * kGroupColumns;
    _tile_loadd(4, p.a + g * kGroupElements, p.a_stride);
    _tile_loadd(6, b, p.b_stride);
    _tile_zero(0);
    _tile_dpbsud(0, 4, 6);
    _tile_loadd(7, b + 64, p.b_stride);
    _tile_zero(1);
    _tile_dpbsud(1, 4, 7);
    _tile_stored(0, sums, kGroupColumns * 4);
    _tile_stored(1, sums + 16, kGroupColumns * 4);
  }
  AmxTiles::finish_stores();
}

void sum_groups_emulated(const GroupSums& p) {
  for (int64_t g = 0; g < p.groups; ++g)
    for (int64_t row = 0; row < kGroupRows; ++row) {
      int32_t* sums = p.sums + (g * kGroupRows + row) * kGroupColumns;
      std::memset(sums, 0, kGroupColumns * sizeof *sums);
      const int8_t* a = p.a + row * p.a_stride + g * kGroupElements;
      for (int64_t k = 0; k < kGroupElements; ++k) {
        const uint8_t* b = p.b + (g * kGroupElements + k) / 4 * p.b_stride + k % 4;
        for (int64_t column = 0; column < kGroupColumns; ++column) sums[column] += a[k] * b[4 * column];
      }
    }
}

}  // namespace qkv::tile

#else  // never called: byte_tiles_available() is false

namespace qkv::tile {
void configure_groups_amx() {}
void sum_groups_amx(const GroupSums&) {}
void sum_groups_emulated(const GroupSums&) {}
}  // namespace qkv::tile

#endif

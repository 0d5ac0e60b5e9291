// The eight tile registers and their roles in a block of 32 x 32 sums: two tiles of A, one above the other;
// two of B, side by side; and four of sums, where sums_ij adds A_i B_j. AmxTiles and EmulatedTiles have the
// same operations; a product is a template over either.
//
// A tile is 16 rows of 64 bytes. A's tiles hold 16 rows of A, with 32 elements of k each. B's tiles hold 16
// pairs of elements of k; a row has one pair of each of 16 columns, side by side. Tiles of sums hold
// 16 x 16 f32.
#pragma once

#include <immintrin.h>

#include <cassert>
#include <cstdint>
#include <cstring>

#include "qkv/tensor/dtype.h"

namespace qkv::tile {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileElements = 512;  // bf16

// Rounds to nearest, ties to even, as BFloat16(float) does. The bits are in the lower half of each lane.
__m512i bf16_bits(__m512 x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
  const __m512i quiet_nan = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet_nan);
}

// The sizes of the tiles. They belong to the thread and are in force until release. Other users (oneDNN's
// kernels) also load theirs on entry and release them on exit, so neither finds the other's.
class TileConfiguration {
 public:
  void set(int tile, int64_t rows, int64_t row_bytes) {
    fields_.rows[tile] = static_cast<uint8_t>(rows);
    fields_.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  }
  void load() const {
    // GCC 12 believes that the next line reads 8 bytes, and would not store the others.
    asm volatile("" : : "r"(&fields_) : "memory");
    _tile_loadconfig(&fields_);
  }

 private:
  struct alignas(64) {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  } fields_ = {.palette = 1, .start_row = 0, .reserved = {}, .row_bytes = {}, .rows = {}};
  static_assert(sizeof(fields_) == 64);
};

// The processor's tiles. Compilers' headers paste a register's number into the instruction's text, so it
// must be a literal.
class AmxTiles {
 public:
  static void configure() {
    TileConfiguration configuration;
    for (int t = 0; t < 8; ++t) configuration.set(t, kTileRows, 64);
    configuration.load();
  }
  static void release() { _tile_release(); }

  static void zero_sums() {
    finish_stores();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  // Load or store the sums of a block of 32 x 32, with rows `stride` floats apart.
  static void load_sums(const float* sums, int64_t stride) {
    finish_stores();
    const float* below = sums + kTileRows * stride;
    _tile_loadd(0, sums, stride * 4);
    _tile_loadd(1, sums + kTileRows, stride * 4);
    _tile_loadd(2, below, stride * 4);
    _tile_loadd(3, below + kTileRows, stride * 4);
  }
  static void store_sums(float* sums, int64_t stride) {
    float* below = sums + kTileRows * stride;
    _tile_stored(0, sums, stride * 4);
    _tile_stored(1, sums + kTileRows, stride * 4);
    _tile_stored(2, below, stride * 4);
    _tile_stored(3, below + kTileRows, stride * 4);
  }

  // Rows are `bytes` apart. A is read once per panel of B, so its loads (TILELOADDT1) leave the L1 cache to
  // B.
  static void load_a0(const BFloat16* a, int64_t bytes) { _tile_stream_loadd(4, a, bytes); }
  static void load_a1(const BFloat16* a, int64_t bytes) { _tile_stream_loadd(5, a, bytes); }
  static void load_b0(const BFloat16* b, int64_t bytes) { _tile_loadd(6, b, bytes); }
  static void load_b1(const BFloat16* b, int64_t bytes) { _tile_loadd(7, b, bytes); }
  static void multiply_00() { _tile_dpbf16ps(0, 4, 6); }
  static void multiply_01() { _tile_dpbf16ps(1, 4, 7); }
  static void multiply_10() { _tile_dpbf16ps(2, 5, 6); }
  static void multiply_11() { _tile_dpbf16ps(3, 5, 7); }

  // Rounds 32 elements. Every processor with tiles has this instruction (available.cc checks). Like tiles,
  // it takes denormals for 0.
  static __m512i to_bf16(__m512 low, __m512 high) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  }

  // GCC's tile loads and stores do not say what memory they use. This keeps stores of packed data before
  // them.
  static void finish_stores() { asm volatile("" : : : "memory"); }
};

// Plain loops by the Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS. The
// even and the odd elements of k are summed apart, from zero, and their sum is added. Denormals, which
// tiles flush, are kept.
class EmulatedTiles {
 public:
  void configure() { configured_ = true; }
  void release() { configured_ = false; }

  void zero_sums() { std::memset(sums_, 0, sizeof sums_); }
  void load_sums(const float* sums, int64_t stride) {
    for (int64_t t = 0; t < 4; ++t) load(sums_[t], corner(sums, t, stride), stride * 4);
  }
  void store_sums(float* sums, int64_t stride) const {
    for (int64_t t = 0; t < 4; ++t)
      for (int64_t row = 0; row < kTileRows; ++row)
        std::memcpy(corner(sums, t, stride) + row * stride, sums_[t][row], 64);
  }

  void load_a0(const BFloat16* a, int64_t bytes) { load(a_[0], a, bytes); }
  void load_a1(const BFloat16* a, int64_t bytes) { load(a_[1], a, bytes); }
  void load_b0(const BFloat16* b, int64_t bytes) { load(b_[0], b, bytes); }
  void load_b1(const BFloat16* b, int64_t bytes) { load(b_[1], b, bytes); }
  void multiply_00() { multiply(sums_[0], a_[0], b_[0]); }
  void multiply_01() { multiply(sums_[1], a_[0], b_[1]); }
  void multiply_10() { multiply(sums_[2], a_[1], b_[0]); }
  void multiply_11() { multiply(sums_[3], a_[1], b_[1]); }

  static __m512i to_bf16(__m512 low, __m512 high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(bf16_bits(low))),
                              _mm512_cvtepi32_epi16(bf16_bits(high)), 1);
  }

 private:
  using Pairs = uint32_t[kTileRows][16];  // two bf16, the even element in the lower half

  template <typename Rows>
  static void load(Rows& tile, const void* from, int64_t bytes) {
    for (int64_t row = 0; row < kTileRows; ++row)
      std::memcpy(tile[row], static_cast<const char*>(from) + row * bytes, 64);
  }
  // The first element of the t-th tile of sums.
  template <typename Float>
  static Float* corner(Float* sums, int64_t t, int64_t stride) {
    return sums + t / 2 * kTileRows * stride + t % 2 * kTileRows;
  }

  static float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }
  static float even(uint32_t pair) { return float_of(pair << 16); }
  static float odd(uint32_t pair) { return float_of(pair & 0xFFFF0000); }

  void multiply(float (&sums)[kTileRows][16], const Pairs& a, const Pairs& b) const {
    assert(configured_);  // else the processor would fault
    for (int64_t row = 0; row < kTileRows; ++row) {
      float evens[16] = {}, odds[16] = {};
      for (int pair = 0; pair < 16; ++pair)
        for (int column = 0; column < 16; ++column) {
          evens[column] += even(a[row][pair]) * even(b[pair][column]);
          odds[column] += odd(a[row][pair]) * odd(b[pair][column]);
        }
      for (int column = 0; column < 16; ++column) sums[row][column] += evens[column] + odds[column];
    }
  }

  bool configured_ = false;
  float sums_[4][kTileRows][16];
  Pairs a_[2], b_[2];
};

}  // namespace
}  // namespace qkv::tile

// Packing into tile order. A and B are both treated as `lines` of k elements: rows of A, columns of B. A
// step of a panel is 32 lines x 32 elements of k, as two tiles of 16 x 16 pairs of elements:
//   A's tiles need [line][pair], B's need [pair][line].
// An operand stored line by line is read as [line][pair], one stored by k as [pair][line]. If the tiles
// need the other order, each 16 x 16 pairs are transposed.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "qkv/kernels/gemm.h"
#include "qkv/kernels/tile/share.h"
#include "qkv/kernels/tile/tiles-inl.h"

namespace qkv::tile {
namespace {

constexpr int64_t smaller(int64_t a, int64_t b) {  // std::min compiled here might run on any processor
  return a < b ? a : b;
}

struct Operand {
  const BFloat16* data;
  int64_t stride;  // elements between stored rows
  int64_t lines, depth;
  bool by_depth;  // stored as [depth, lines]
};

Operand rows_of_a(const Product& p) {
  return {static_cast<const BFloat16*>(p.a.data), p.a.stride, p.m, p.k, p.a.transposed};
}
Operand columns_of_b(const Product& p) {
  return {static_cast<const BFloat16*>(p.b.data), p.b.stride, p.n, p.k, !p.b.transposed};
}

// Bits for elements [at, at + 32), set for those below `extent`.
uint32_t mask32(int64_t at, int64_t extent) {
  const int64_t n = extent - at;
  return n >= 32 ? ~uint32_t{0} : n <= 0 ? 0 : (uint32_t{1} << n) - 1;
}

using Tile = __m512i[kTileRows];

// Reads elements [k, k + 32) of lines [line, line + 16), stored line by line.
void read_lines(const Operand& x, int64_t line, int64_t k, Tile& tile) {
  constexpr int64_t kAhead = 256;  // elements: 512 bytes
  const __mmask32 within = mask32(k, x.depth);
  for (int64_t i = 0; i < kTileRows; ++i) {
    const BFloat16* from = x.data + (line + i) * x.stride + k;
    tile[i] = _mm512_setzero_si512();
    if (line + i >= x.lines) continue;
    _mm_prefetch(reinterpret_cast<const char*>(from + kAhead), _MM_HINT_T0);
    tile[i] = _mm512_maskz_loadu_epi16(within, from);
  }
}

// Interleaves 16 elements of two stored rows into pairs.
__m512i pairs_of(const BFloat16* even, __mmask16 within_even, const BFloat16* odd, __mmask16 within_odd) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(within_even, even));
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(within_odd, odd));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Reads elements [k, k + 32) of lines [line, line + 16), stored by k.
void read_depths(const Operand& x, int64_t line, int64_t k, Tile& tile) {
  const auto within = static_cast<__mmask16>(mask32(line, x.lines));
  for (int64_t i = 0; i < kTileRows; ++i) {
    const int64_t at = k + 2 * i;
    const BFloat16 *even = x.data + at * x.stride + line, *odd = even + x.stride;
    _mm_prefetch(reinterpret_cast<const char*>(even + kPanel * x.stride), _MM_HINT_T1);  // the next step
    _mm_prefetch(reinterpret_cast<const char*>(odd + kPanel * x.stride), _MM_HINT_T1);
    const __mmask16 none = 0;
    tile[i] = pairs_of(even, at < x.depth ? within : none, odd, at + 1 < x.depth ? within : none);
  }
}

// Interleaves rows i and i + 8 into rows 2i and 2i + 1, four times. Each time the address of a pair (four
// bits of its row, four of its column) rotates by one bit:
// r3 r2 r1 r0 | c3 c2 c1 c0 -> r2 r1 r0 c3 | c2 c1 c0 r3.
void transpose(Tile& tile) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  for (int turn = 0; turn < 4; ++turn) {
    Tile turned;
    for (int64_t i = 0; i < 8; ++i) {
      turned[2 * i] = _mm512_permutex2var_epi32(tile[i], low, tile[i + 8]);
      turned[2 * i + 1] = _mm512_permutex2var_epi32(tile[i], high, tile[i + 8]);
    }
    for (int64_t i = 0; i < kTileRows; ++i) tile[i] = turned[i];
  }
}

template <bool by_depth, bool pairs_first>
void pack_step(const Operand& x, int64_t panel, int64_t step, BFloat16* out) {
  for (int64_t half = 0; half < 2; ++half) {
    Tile tile;
    const int64_t line = panel * kPanel + half * kTileRows, k = step * kPanel;
    if constexpr (by_depth)
      read_depths(x, line, k, tile);
    else
      read_lines(x, line, k, tile);
    if constexpr (by_depth != pairs_first) transpose(tile);
    for (int64_t i = 0; i < kTileRows; ++i)
      _mm512_store_si512(out + half * kTileElements + i * kPanel, tile[i]);
  }
}

// Packs steps `steps` of panels `lines` into out [panels, pitch, kStepElements], in the order of the
// source's memory.
template <bool by_depth, bool pairs_first>
void pack(const Operand& x, Range lines, Range steps, int64_t pitch, BFloat16* out) {
  const auto pack_at = [&](int64_t panel, int64_t step) {
    pack_step<by_depth, pairs_first>(
        x, panel, step, out + ((panel - lines.begin) * pitch + step - steps.begin) * kStepElements);
  };
  if constexpr (by_depth) {
    for (int64_t step = steps.begin; step < steps.end; ++step)
      for (int64_t panel = lines.begin; panel < lines.end; ++panel) pack_at(panel, step);
  } else {
    for (int64_t panel = lines.begin; panel < lines.end; ++panel)
      for (int64_t step = steps.begin; step < steps.end; ++step) pack_at(panel, step);
  }
}

// pairs_first: as B's tiles need it.
template <bool pairs_first>
void pack(const Operand& x, Range lines, Range steps, int64_t pitch, BFloat16* out) {
  if (x.by_depth)
    pack<true, pairs_first>(x, lines, steps, pitch, out);
  else
    pack<false, pairs_first>(x, lines, steps, pitch, out);
}

}  // namespace
}  // namespace qkv::tile

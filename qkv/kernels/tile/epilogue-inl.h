// The way of a finished block's sums to C: bias, accumulation, rounding, the store.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "qkv/kernels/gemm.h"
#include "qkv/kernels/tile/pack-inl.h"
#include "qkv/kernels/tile/tiles-inl.h"

namespace qkv::tile {
namespace {

// Holds one block whose sums are done and writes it a few rows at a time, while the tiles multiply the next.
template <typename Tiles, typename Out>
class Epilogue {
 public:
  Epilogue(const Product& p, bool stream)
      : bias_(p.bias), all_(static_cast<Out*>(p.c)), stride_(p.c_stride), m_(p.m), n_(p.n) {
    accumulate_ = p.accumulate;
    // Past the caches only whole lines can go; and what is read first (accumulating) is cached already.
    stream_ = stream && !accumulate_ && reinterpret_cast<uintptr_t>(p.c) % 64 == 0 &&
              stride_ * sizeof(Out) % 64 == 0;
  }

  // sums: [32, 32], of the block of C at [row, column]; they must stay until all rows are written.
  // REQUIRES: the last block is.
  void begin(const float* sums, int64_t row, int64_t column) {
    sums_ = sums;
    c_ = all_ + row * stride_ + column;
    rows_ = smaller(kPanel, m_ - row);
    within_ = mask32(column, n_);
    for (int64_t half = 0; half < 2; ++half)
      bias_lanes_[half] =
          bias_ ? _mm512_maskz_loadu_ps(lanes(half), bias_ + column + half * 16) : _mm512_setzero_ps();
    next_ = 0;
  }

  void write_rows(int64_t count) {
    for (; count > 0 && next_ < rows_; --count) write_row(next_++);
  }
  void finish() {
    write_rows(kPanel);
    if (stream_) _mm_sfence();  // before another thread is told that C is there
  }

 private:
  __mmask16 lanes(int64_t half) const { return static_cast<__mmask16>(within_ >> 16 * half); }

  void write_row(int64_t row) {
    constexpr int64_t kAhead = 8;  // rows
    Out* c = c_ + row * stride_;
    if (!stream_) __builtin_prefetch(c + kAhead * stride_, 1);
    const float* sums = sums_ + row * kPanel;
    __m512 x[2];
    for (int64_t half = 0; half < 2; ++half) {
      x[half] = _mm512_add_ps(_mm512_load_ps(sums + half * 16), bias_lanes_[half]);
      if (accumulate_) x[half] = _mm512_add_ps(x[half], read(c + half * 16, lanes(half)));
    }
    write(x[0], x[1], c);
  }

  static __m512 read(const Out* c, __mmask16 lanes) {
    if constexpr (std::is_same_v<Out, float>)
      return _mm512_maskz_loadu_ps(lanes, c);
    else
      return _mm512_castsi512_ps(
          _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, c)), 16));
  }

  void write(__m512 left, __m512 right, Out* c) const {
    const bool stream = stream_ && within_ == ~uint32_t{0};
    if constexpr (std::is_same_v<Out, float>) {
      if (stream) {
        _mm512_stream_ps(c, left);
        _mm512_stream_ps(c + 16, right);
      } else {
        _mm512_mask_storeu_ps(c, lanes(0), left);
        _mm512_mask_storeu_ps(c + 16, lanes(1), right);
      }
    } else {
      const __m512i both = Tiles::to_bf16(left, right);
      if (stream)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(c), both);
      else
        _mm512_mask_storeu_epi16(c, within_, both);
    }
  }

  const float* bias_;
  Out* all_;
  int64_t stride_, m_, n_;
  bool accumulate_, stream_;
  // The block.
  const float* sums_ = nullptr;
  Out* c_ = nullptr;
  int64_t rows_ = 0, next_ = 0;
  uint32_t within_ = 0;  // a bit a column that C has
  __m512 bias_lanes_[2];
};

}  // namespace
}  // namespace qkv::tile

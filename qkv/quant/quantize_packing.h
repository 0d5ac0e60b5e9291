// Levels of 256 numbers into the bits that the formats of quant/blocks.h give them.
#pragma once

#include <cstdint>

namespace qkv::quant {

// Levels in [0, 4), as q2_k has them.
inline void pack_two_bits(const uint8_t (&levels)[256], uint8_t (&qs)[64]) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* l = levels + 128 * half;
    for (int i = 0; i < 32; ++i)
      qs[32 * half + i] = static_cast<uint8_t>(l[i] | l[i + 32] << 2 | l[i + 64] << 4 | l[i + 96] << 6);
  }
}

// The lower four bits of each, nibbles of every kSpan elements.
template <int kSpan>
void pack_nibbles(const uint8_t (&levels)[256], uint8_t (&qs)[128]) {
  constexpr int kHalf = kSpan / 2;
  for (int begin = 0; begin < 256; begin += kSpan) {
    const uint8_t* l = levels + begin;
    for (int i = 0; i < kHalf; ++i)
      qs[begin / 2 + i] = static_cast<uint8_t>((l[i] & 15) | (l[i + kHalf] & 15) << 4);
  }
}

// Bit `bit` of level i as bit i / 32 of byte i % 32.
inline void pack_one_bit(const uint8_t (&levels)[256], int bit, uint8_t (&mask)[32]) {
  for (int i = 0; i < 32; ++i) {
    int bits = 0;
    for (int k = 0; k < 8; ++k) bits |= (levels[32 * k + i] >> bit & 1) << k;
    mask[i] = static_cast<uint8_t>(bits);
  }
}

}  // namespace qkv::quant

// Blocks of quantised numbers, field by field, as GGUF files hold them.
//
// Below, x(i) is the number that element i of a block denotes. f16 fields are read as f32, and products and
// sums are rounded to f32 from left to right. "Nibbles" of n elements are n / 2 bytes: byte i holds element i
// in its lower half and element i + n / 2 in its upper half. The formats are those of ggml.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "qkv/tensor/weight_type.h"

namespace qkv {

// x(i) = d * (q(i) - 8), q in nibbles.
struct BlockQ40 {
  static constexpr WeightType kType = WeightType::q4_0;
  Float16 d;
  uint8_t qs[16];
};

// x(i) = d * q(i) + m, q in nibbles.
struct BlockQ41 {
  static constexpr WeightType kType = WeightType::q4_1;
  Float16 d, m;
  uint8_t qs[16];
};

// x(i) = d * (q(i) - 16); q's lower four bits in nibbles, its fifth is bit i of qh (little endian).
struct BlockQ50 {
  static constexpr WeightType kType = WeightType::q5_0;
  Float16 d;
  uint8_t qh[4];
  uint8_t qs[16];
};

// x(i) = d * q(i) + m, q as in q5_0.
struct BlockQ51 {
  static constexpr WeightType kType = WeightType::q5_1;
  Float16 d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};

// x(i) = d * qs[i].
struct BlockQ80 {
  static constexpr WeightType kType = WeightType::q8_0;
  Float16 d;
  int8_t qs[32];
};

// With s = scales[i / 16]: x(i) = (d * (s & 15)) * q(i) - dmin * (s >> 4).
// q(i), two bits: byte 32 * (i / 128) + i % 32 of qs, shifted right by 2 * (i / 32 % 4).
struct BlockQ2K {
  static constexpr WeightType kType = WeightType::q2_k;
  uint8_t scales[16];
  uint8_t qs[64];
  Float16 d, dmin;
};

// x(i) = (d * s(i / 16)) * (q(i) + 4 * h(i) - 4): q as in q2_k, h(i) is bit i / 32 of hmask[i % 32], and s is
// q3_scale().
struct BlockQ3K {
  static constexpr WeightType kType = WeightType::q3_k;
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  Float16 d;
};

// With (s, m) = scale_and_min(scales, i / 32): x(i) = (d * s) * q(i) - dmin * m. q: nibbles of every 64
// elements.
struct BlockQ4K {
  static constexpr WeightType kType = WeightType::q4_k;
  Float16 d, dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

// As q4_k; q's fifth bit is bit i / 32 of qh[i % 32].
struct BlockQ5K {
  static constexpr WeightType kType = WeightType::q5_k;
  Float16 d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

// x(i) = (d * scales[i / 16]) * (q(i) - 32). q's lower four bits: nibbles of every 128 elements. Its upper
// two: qh as qs of q2_k.
struct BlockQ6K {
  static constexpr WeightType kType = WeightType::q6_k;
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  Float16 d;
};

// x(i) = d * kIq4Values[q(i)], q in nibbles.
struct BlockIq4Nl {
  static constexpr WeightType kType = WeightType::iq4_nl;
  Float16 d;
  uint8_t qs[16];
};

// With g = i / 32 and s(g) = (nibble g % 2 of scales_l[g / 2]) + 16 * (bits 2g, 2g + 1 of scales_h) - 32:
// x(i) = (d * s(g)) * kIq4Values[q(i)]. q: nibbles of every 32 elements.
struct BlockIq4Xs {
  static constexpr WeightType kType = WeightType::iq4_xs;
  Float16 d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

// x(i) = 2^(e - 128) * kMxfp4Values[q(i)], q in nibbles: FP4 (E2M1) with a shared power of two, as OCP's MX
// has it.
struct BlockMxfp4 {
  static constexpr WeightType kType = WeightType::mxfp4;
  uint8_t e;
  uint8_t qs[16];
};

template <typename... Blocks>
constexpr bool have_their_layouts() {
  return ((static_cast<int64_t>(sizeof(Blocks)) == layout_of(Blocks::kType).bytes) && ...);
}
static_assert(have_their_layouts<BlockQ40, BlockQ41, BlockQ50, BlockQ51, BlockQ80, BlockQ2K, BlockQ3K,
                                 BlockQ4K, BlockQ5K, BlockQ6K, BlockIq4Nl, BlockIq4Xs, BlockMxfp4>());

// Elements of a block.
template <typename Block>
inline constexpr int kElements = static_cast<int>(layout_of(Block::kType).elements);

// The numbers of iq4_nl and iq4_xs, in units of the scale.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// Twice the sixteen numbers of FP4, E2M1.
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128): the scale of doubled FP4 numbers.
constexpr float mxfp4_scale(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : (uint32_t{e} - 1) << 23);
}

// Scale and minimum of a group of q4_k and q5_k, six bits each.
struct ScaleAndMin {
  uint8_t scale, min;
};

// Reads group 0..7. The first four have theirs in the lower six bits of bytes 0-3 (scales) and 4-7 (minima).
// The others have their lower four bits in bytes 8-11, and their upper two in the upper two of bytes 0-7.
inline ScaleAndMin scale_and_min(const uint8_t (&scales)[12], int group) {
  const auto byte = [&](int i) { return static_cast<unsigned>(scales[i]); };
  if (group < 4) return {static_cast<uint8_t>(byte(group) & 63), static_cast<uint8_t>(byte(group + 4) & 63)};
  return {static_cast<uint8_t>((byte(group + 4) & 15) | (byte(group - 4) >> 6) << 4),
          static_cast<uint8_t>(byte(group + 4) >> 4 | (byte(group) >> 6) << 4)};
}

// The scale of group 0..15 of q3_k, in [-32, 31]: lower four bits in the lower, then the upper halves of
// bytes 0-7, upper two bits in bytes 8-11.
inline int q3_scale(const uint8_t (&scales)[12], int group) {
  const int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
  const int high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
  return (low | high << 4) - 32;
}

// Element `index` of blocks in memory that may be unaligned.
template <typename Block>
Block load_block(const std::byte* blocks, int64_t index) {
  Block block;
  std::memcpy(&block, blocks + index * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
  return block;
}

}  // namespace qkv

#include <cassert>

#include "qkv/quant/blocks.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

float number(Float16 x) {
  return float_from_f16(x.bits);
}

// Levels are unpacked to bytes first: loops over bytes, and then over numbers, vectorize.

// Nibbles that lie together for every kSpan elements.
template <int kSpan, int kBytes>
void unpack_nibbles(const uint8_t (&qs)[kBytes], uint8_t (&levels)[2 * kBytes]) {
  constexpr int kHalf = kSpan / 2;
  for (int begin = 0; begin < 2 * kBytes; begin += kSpan) {
    for (int i = 0; i < kHalf; ++i) {
      levels[begin + i] = qs[begin / 2 + i] & 15;
      levels[begin + kHalf + i] = qs[begin / 2 + i] >> 4;
    }
  }
}

// Adds 16 where bit i of qh is set.
void add_fifth_bits(const uint8_t (&qh)[4], uint8_t (&levels)[32]) {
  for (int i = 0; i < 32; ++i) levels[i] = static_cast<uint8_t>(levels[i] | (qh[i / 8] >> (i % 8) & 1) << 4);
}

// Adds the two bits of each element, as q2_k has them, shifted to the left by `shift`.
void add_two_bits(const uint8_t (&qs)[64], int shift, uint8_t (&levels)[256]) {
  for (int part = 0; part < 8; ++part) {
    const uint8_t* bytes = qs + 32 * (part / 4);
    for (int i = 0; i < 32; ++i) {
      uint8_t& level = levels[32 * part + i];
      level = static_cast<uint8_t>(level | (bytes[i] >> (2 * (part % 4)) & 3) << shift);
    }
  }
}

// Adds bit i / 32 of mask[i % 32], shifted to the left by `shift`.
void add_one_bit(const uint8_t (&mask)[32], int shift, uint8_t (&levels)[256]) {
  for (int part = 0; part < 8; ++part) {
    for (int i = 0; i < 32; ++i) {
      uint8_t& level = levels[32 * part + i];
      level = static_cast<uint8_t>(level | (mask[i] >> part & 1) << shift);
    }
  }
}

// x(i) = scale * (l(i) - zero).
template <int n>
void scale_from(const uint8_t* levels, float scale, int zero, float* x) {
  for (int i = 0; i < n; ++i) x[i] = scale * static_cast<float>(levels[i] - zero);
}
// x(i) = scale * l(i) + offset.
template <int n>
void scale_and_add(const uint8_t* levels, float scale, float offset, float* x) {
  for (int i = 0; i < n; ++i) x[i] = scale * static_cast<float>(levels[i]) + offset;
}
// x(i) = scale * values[l(i)].
template <int n>
void scale_values(const uint8_t* levels, float scale, const int8_t (&values)[16], float* x) {
  for (int i = 0; i < n; ++i) x[i] = scale * static_cast<float>(values[levels[i]]);
}

// Each writes a block's numbers, rounded as ggml's dequantize_row_*() does.
void expand(const BlockQ40& b, float* x) {
  uint8_t levels[32];
  unpack_nibbles<32>(b.qs, levels);
  scale_from<32>(levels, number(b.d), 8, x);
}

void expand(const BlockQ41& b, float* x) {
  uint8_t levels[32];
  unpack_nibbles<32>(b.qs, levels);
  scale_and_add<32>(levels, number(b.d), number(b.m), x);
}

void expand(const BlockQ50& b, float* x) {
  uint8_t levels[32];
  unpack_nibbles<32>(b.qs, levels);
  add_fifth_bits(b.qh, levels);
  scale_from<32>(levels, number(b.d), 16, x);
}

void expand(const BlockQ51& b, float* x) {
  uint8_t levels[32];
  unpack_nibbles<32>(b.qs, levels);
  add_fifth_bits(b.qh, levels);
  scale_and_add<32>(levels, number(b.d), number(b.m), x);
}

void expand(const BlockQ80& b, float* x) {
  const float d = number(b.d);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(b.qs[i]);
}

void expand(const BlockQ2K& b, float* x) {
  const float d = number(b.d), dmin = number(b.dmin);
  uint8_t levels[256] = {};
  add_two_bits(b.qs, 0, levels);
  for (int g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(b.scales[g] & 15),
                min = dmin * static_cast<float>(b.scales[g] >> 4);
    scale_and_add<16>(levels + 16 * g, scale, -min, x + 16 * g);
  }
}

void expand(const BlockQ3K& b, float* x) {
  const float d = number(b.d);
  uint8_t levels[256] = {};
  add_two_bits(b.qs, 0, levels);
  add_one_bit(b.hmask, 2, levels);
  for (int g = 0; g < 16; ++g)
    scale_from<16>(levels + 16 * g, d * static_cast<float>(q3_scale(b.scales, g)), 4, x + 16 * g);
}

// The groups of q4_k and q5_k.
template <typename Block>
void expand_groups(const Block& b, const uint8_t (&levels)[256], float* x) {
  const float d = number(b.d), dmin = number(b.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleAndMin six = scale_and_min(b.scales, g);
    const float scale = d * static_cast<float>(six.scale), min = dmin * static_cast<float>(six.min);
    scale_and_add<32>(levels + 32 * g, scale, -min, x + 32 * g);
  }
}

void expand(const BlockQ4K& b, float* x) {
  uint8_t levels[256];
  unpack_nibbles<64>(b.qs, levels);
  expand_groups(b, levels, x);
}

void expand(const BlockQ5K& b, float* x) {
  uint8_t levels[256];
  unpack_nibbles<64>(b.qs, levels);
  add_one_bit(b.qh, 4, levels);
  expand_groups(b, levels, x);
}

void expand(const BlockQ6K& b, float* x) {
  const float d = number(b.d);
  uint8_t levels[256];
  unpack_nibbles<128>(b.ql, levels);
  add_two_bits(b.qh, 4, levels);
  for (int g = 0; g < 16; ++g)
    scale_from<16>(levels + 16 * g, d * static_cast<float>(b.scales[g]), 32, x + 16 * g);
}

void expand(const BlockIq4Nl& b, float* x) {
  uint8_t levels[32];
  unpack_nibbles<32>(b.qs, levels);
  scale_values<32>(levels, number(b.d), kIq4Values, x);
}

void expand(const BlockIq4Xs& b, float* x) {
  const float d = number(b.d);
  uint8_t levels[256];
  unpack_nibbles<32>(b.qs, levels);
  for (int g = 0; g < 8; ++g) {
    const int low = b.scales_l[g / 2] >> (4 * (g % 2)) & 15, high = b.scales_h >> (2 * g) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    scale_values<32>(levels + 32 * g, scale, kIq4Values, x + 32 * g);
  }
}

void expand(const BlockMxfp4& b, float* x) {
  uint8_t levels[32];
  unpack_nibbles<32>(b.qs, levels);
  scale_values<32>(levels, mxfp4_scale(b.e), kMxfp4Values, x);
}

template <typename Block>
void expand_row(const std::byte* blocks, int64_t n, float* x) {
  for (int64_t i = 0; i < n / kElements<Block>; ++i)
    expand(load_block<Block>(blocks, i), x + i * kElements<Block>);
}

uint16_t load_bits(const std::byte* numbers, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, numbers + 2 * index, sizeof bits);
  return bits;
}

}  // namespace

void dequantize_row(WeightType type, const std::byte* blocks, int64_t n, float* x) {
  assert(n % layout_of(type).elements == 0);
  switch (type) {
    case WeightType::f32:
      std::memcpy(x, blocks, static_cast<size_t>(n) * sizeof(float));
      return;
    case WeightType::f16:
      for (int64_t i = 0; i < n; ++i) x[i] = float_from_f16(load_bits(blocks, i));
      return;
    case WeightType::bf16:
      for (int64_t i = 0; i < n; ++i) x[i] = std::bit_cast<float>(uint32_t{load_bits(blocks, i)} << 16);
      return;
    case WeightType::q4_0:
      return expand_row<BlockQ40>(blocks, n, x);
    case WeightType::q4_1:
      return expand_row<BlockQ41>(blocks, n, x);
    case WeightType::q5_0:
      return expand_row<BlockQ50>(blocks, n, x);
    case WeightType::q5_1:
      return expand_row<BlockQ51>(blocks, n, x);
    case WeightType::q8_0:
      return expand_row<BlockQ80>(blocks, n, x);
    case WeightType::q2_k:
      return expand_row<BlockQ2K>(blocks, n, x);
    case WeightType::q3_k:
      return expand_row<BlockQ3K>(blocks, n, x);
    case WeightType::q4_k:
      return expand_row<BlockQ4K>(blocks, n, x);
    case WeightType::q5_k:
      return expand_row<BlockQ5K>(blocks, n, x);
    case WeightType::q6_k:
      return expand_row<BlockQ6K>(blocks, n, x);
    case WeightType::iq4_nl:
      return expand_row<BlockIq4Nl>(blocks, n, x);
    case WeightType::iq4_xs:
      return expand_row<BlockIq4Xs>(blocks, n, x);
    case WeightType::mxfp4:
      return expand_row<BlockMxfp4>(blocks, n, x);
  }
}

}  // namespace qkv

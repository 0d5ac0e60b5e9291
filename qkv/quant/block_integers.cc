#include "qkv/quant/block_integers.h"

#include "qkv/quant/blocks.h"

namespace qkv {
namespace {

float as_float(Float16 x) {
  return float_from_f16(x.bits);
}

// Element i of n in nibbles: byte i has it in its lower half, or byte i - n / 2 in its upper.
int nibble(const uint8_t* bytes, int i, int n) {
  return i < n / 2 ? bytes[i] & 15 : bytes[i - n / 2] >> 4;
}
// The same, n at a time.
int nibble_in_runs(const uint8_t* bytes, int i, int n) {
  return nibble(bytes + i / n * (n / 2), i % n, n);
}
// Two bits of element i: 128 elements are four planes of 32 bytes.
int two_bits(const uint8_t* bytes, int i) {
  return bytes[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
}
int bit(const uint8_t* bytes, int i) {
  return bytes[i / 8] >> (i % 8) & 1;
}

void set_all(int16_t (&u)[16], int16_t value) {
  for (int16_t& x : u) x = value;
}

void read(const BlockQ40& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int i = 0; i < 32; ++i) out.w[i] = static_cast<int16_t>(nibble(b.qs, i, 32) - 8);
}
void read(const BlockQ41& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  out.m = as_float(b.m);
  for (int i = 0; i < 32; ++i) out.w[i] = static_cast<int16_t>(nibble(b.qs, i, 32));
  set_all(out.u, 1);
}
void read(const BlockQ50& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int i = 0; i < 32; ++i)
    out.w[i] = static_cast<int16_t>((nibble(b.qs, i, 32) | bit(b.qh, i) << 4) - 16);
}
void read(const BlockQ51& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  out.m = as_float(b.m);
  for (int i = 0; i < 32; ++i) out.w[i] = static_cast<int16_t>(nibble(b.qs, i, 32) | bit(b.qh, i) << 4);
  set_all(out.u, 1);
}
void read(const BlockQ80& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int i = 0; i < 32; ++i) out.w[i] = b.qs[i];  // NOLINT(bugprone-signed-char-misuse): numbers
}
void read(const BlockQ2K& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  out.m = -as_float(b.dmin);
  for (int i = 0; i < 256; ++i) out.w[i] = static_cast<int16_t>((b.scales[i / 16] & 15) * two_bits(b.qs, i));
  for (int g = 0; g < 16; ++g) out.u[g] = static_cast<int16_t>(b.scales[g] >> 4);
}
void read(const BlockQ3K& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int i = 0; i < 256; ++i) {
    const int high = b.hmask[i % 32] >> (i / 32) & 1;
    out.w[i] = static_cast<int16_t>(q3_scale(b.scales, i / 16) * (two_bits(b.qs, i) + 4 * high - 4));
  }
}
template <typename Block>
void read_minima(const Block& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  out.m = -as_float(b.dmin);
  for (int g = 0; g < 16; ++g) out.u[g] = scale_and_min(b.scales, g / 2).min;
}
void read(const BlockQ4K& b, BlockIntegers& out) {
  read_minima(b, out);
  for (int i = 0; i < 256; ++i)
    out.w[i] = static_cast<int16_t>(scale_and_min(b.scales, i / 32).scale * nibble_in_runs(b.qs, i, 64));
}
void read(const BlockQ5K& b, BlockIntegers& out) {
  read_minima(b, out);
  for (int i = 0; i < 256; ++i) {
    const int high = b.qh[i % 32] >> (i / 32) & 1;
    out.w[i] = static_cast<int16_t>(scale_and_min(b.scales, i / 32).scale *
                                    (nibble_in_runs(b.qs, i, 64) | high << 4));
  }
}
void read(const BlockQ6K& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int i = 0; i < 256; ++i)
    out.w[i] = static_cast<int16_t>(b.scales[i / 16] *
                                    ((nibble_in_runs(b.ql, i, 128) | two_bits(b.qh, i) << 4) - 32));
}
void read(const BlockIq4Nl& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int i = 0; i < 32; ++i)
    out.w[i] = kIq4Values[nibble(b.qs, i, 32)];  // NOLINT(bugprone-signed-char-misuse): numbers
}
void read(const BlockIq4Xs& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int i = 0; i < 256; ++i) {
    const int g = i / 32, low = b.scales_l[g / 2] >> (4 * (g % 2)) & 15, high = b.scales_h >> (2 * g) & 3;
    out.w[i] = static_cast<int16_t>(((low | high << 4) - 32) * kIq4Values[nibble_in_runs(b.qs, i, 32)]);
  }
}
void read(const BlockMxfp4& b, BlockIntegers& out) {
  out.d = mxfp4_scale(b.e);
  for (int i = 0; i < 32; ++i)
    out.w[i] = kMxfp4Values[nibble(b.qs, i, 32)];  // NOLINT(bugprone-signed-char-misuse): numbers
}

template <typename Block>
BlockIntegers integers_of(const std::byte* block) {
  BlockIntegers out{};
  read(load_block<Block>(block, 0), out);
  return out;
}

}  // namespace

BlockIntegers block_integers(WeightType type, const std::byte* block) {
  switch (type) {
    case WeightType::q4_0:
      return integers_of<BlockQ40>(block);
    case WeightType::q4_1:
      return integers_of<BlockQ41>(block);
    case WeightType::q5_0:
      return integers_of<BlockQ50>(block);
    case WeightType::q5_1:
      return integers_of<BlockQ51>(block);
    case WeightType::q8_0:
      return integers_of<BlockQ80>(block);
    case WeightType::q2_k:
      return integers_of<BlockQ2K>(block);
    case WeightType::q3_k:
      return integers_of<BlockQ3K>(block);
    case WeightType::q4_k:
      return integers_of<BlockQ4K>(block);
    case WeightType::q5_k:
      return integers_of<BlockQ5K>(block);
    case WeightType::q6_k:
      return integers_of<BlockQ6K>(block);
    case WeightType::iq4_nl:
      return integers_of<BlockIq4Nl>(block);
    case WeightType::iq4_xs:
      return integers_of<BlockIq4Xs>(block);
    case WeightType::mxfp4:
      return integers_of<BlockMxfp4>(block);
    case WeightType::f32:
    case WeightType::f16:
    case WeightType::bf16:
      break;
  }
  return {};
}

}  // namespace qkv

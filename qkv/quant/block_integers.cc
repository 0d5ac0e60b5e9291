#include "qkv/quant/block_integers.h"

#include <cstring>

#include "qkv/quant/blocks.h"

namespace qkv {
namespace {

float as_float(Float16 x) {
  return float_from_f16(x.bits);
}

// Runs of elements, each with a rule of its own: compilers make vectors of such loops.

// The n elements of n / 2 bytes: byte i holds element i in its lower half and element i + n / 2 in its upper.
void nibbles(const uint8_t* bytes, int n, int16_t* w) {
  for (int i = 0; i < n / 2; ++i) w[i] = bytes[i] & 15;
  for (int i = 0; i < n / 2; ++i) w[n / 2 + i] = static_cast<int16_t>(bytes[i] >> 4);
}
// Two bits of 128 elements, which are four planes of 32 bytes.
void two_bits(const uint8_t* bytes, int16_t* w) {
  for (int plane = 0; plane < 4; ++plane)
    for (int i = 0; i < 32; ++i) w[32 * plane + i] = static_cast<int16_t>(bytes[i] >> (2 * plane) & 3);
}
void add_bits(const uint8_t (&bits)[4], int16_t* w) {
  uint32_t all = 0;
  std::memcpy(&all, bits, 4);
  for (int i = 0; i < 32; ++i) w[i] = static_cast<int16_t>(w[i] | (all >> i & 1) << 4);
}
// Adds `by` to n elements and multiplies them by `scale`.
void scale_run(int16_t* w, int n, int by, int scale) {
  for (int i = 0; i < n; ++i) w[i] = static_cast<int16_t>((w[i] + by) * scale);
}
void look_up(const int8_t (&table)[16], int16_t* w, int n) {
  for (int i = 0; i < n; ++i) w[i] = table[w[i]];  // NOLINT(bugprone-signed-char-misuse): numbers
}

void set_all(int16_t (&u)[16], int16_t value) {
  for (int16_t& x : u) x = value;
}

void read(const BlockQ40& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  nibbles(b.qs, 32, out.w);
  scale_run(out.w, 32, -8, 1);
}
void read(const BlockQ41& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  out.m = as_float(b.m);
  nibbles(b.qs, 32, out.w);
  set_all(out.u, 1);
}
void read(const BlockQ50& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  nibbles(b.qs, 32, out.w);
  add_bits(b.qh, out.w);
  scale_run(out.w, 32, -16, 1);
}
void read(const BlockQ51& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  out.m = as_float(b.m);
  nibbles(b.qs, 32, out.w);
  add_bits(b.qh, out.w);
  set_all(out.u, 1);
}
void read(const BlockQ80& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int i = 0; i < 32; ++i) out.w[i] = b.qs[i];  // NOLINT(bugprone-signed-char-misuse): numbers
}
void read(const BlockQ2K& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  out.m = -as_float(b.dmin);
  for (int half = 0; half < 2; ++half) two_bits(b.qs + 32 * half, out.w + 128 * half);
  for (int g = 0; g < 16; ++g) {
    scale_run(out.w + 16 * g, 16, 0, b.scales[g] & 15);
    out.u[g] = static_cast<int16_t>(b.scales[g] >> 4);
  }
}
void read(const BlockQ3K& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int half = 0; half < 2; ++half) two_bits(b.qs + 32 * half, out.w + 128 * half);
  for (int run = 0; run < 8; ++run)
    for (int i = 0; i < 32; ++i) {
      int16_t& w = out.w[32 * run + i];
      w = static_cast<int16_t>(w + 4 * (b.hmask[i] >> run & 1));
    }
  for (int g = 0; g < 16; ++g) scale_run(out.w + 16 * g, 16, -4, q3_scale(b.scales, g));
}
template <typename Block>
void read_minima(const Block& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  out.m = -as_float(b.dmin);
  for (int g = 0; g < 16; ++g) out.u[g] = scale_and_min(b.scales, g / 2).min;
}
void read(const BlockQ4K& b, BlockIntegers& out) {
  read_minima(b, out);
  for (int run = 0; run < 4; ++run) nibbles(b.qs + 32 * run, 64, out.w + 64 * run);
  for (int g = 0; g < 8; ++g) scale_run(out.w + 32 * g, 32, 0, scale_and_min(b.scales, g).scale);
}
void read(const BlockQ5K& b, BlockIntegers& out) {
  read_minima(b, out);
  for (int run = 0; run < 4; ++run) nibbles(b.qs + 32 * run, 64, out.w + 64 * run);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) {
      int16_t& w = out.w[32 * g + i];
      w = static_cast<int16_t>(w + 16 * (b.qh[i] >> g & 1));
    }
    scale_run(out.w + 32 * g, 32, 0, scale_and_min(b.scales, g).scale);
  }
}
void read(const BlockQ6K& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int half = 0; half < 2; ++half) {
    int16_t high[128], *w = out.w + 128 * half;
    nibbles(b.ql + 64 * half, 128, w);
    two_bits(b.qh + 32 * half, high);
    for (int i = 0; i < 128; ++i) w[i] = static_cast<int16_t>(w[i] | high[i] << 4);
  }
  for (int g = 0; g < 16; ++g) scale_run(out.w + 16 * g, 16, -32, b.scales[g]);
}
void read(const BlockIq4Nl& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  nibbles(b.qs, 32, out.w);
  look_up(kIq4Values, out.w, 32);
}
void read(const BlockIq4Xs& b, BlockIntegers& out) {
  out.d = as_float(b.d);
  for (int g = 0; g < 8; ++g) {
    const int low = b.scales_l[g / 2] >> (4 * (g % 2)) & 15, high = b.scales_h >> (2 * g) & 3;
    nibbles(b.qs + 16 * g, 32, out.w + 32 * g);
    look_up(kIq4Values, out.w + 32 * g, 32);
    scale_run(out.w + 32 * g, 32, 0, (low | high << 4) - 32);
  }
}
void read(const BlockMxfp4& b, BlockIntegers& out) {
  out.d = mxfp4_scale(b.e);
  nibbles(b.qs, 32, out.w);
  look_up(kMxfp4Values, out.w, 32);
}

template <typename Block>
BlockIntegers integers_of(const std::byte* block) {
  BlockIntegers out;
  out.m = 0;
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

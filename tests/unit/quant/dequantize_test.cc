#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "qkv/quant/blocks.h"
#include "qkv/quant/quantize.h"
#include "tests/unit/quant/row_testing.h"

namespace qkv::dequantize_test {
namespace {

constexpr uint16_t kOne = 0x3C00, kTwo = 0x4000, kHalf = 0x3800;  // f16

// Bits of libggml's dequantize_row_*() of 64 blocks of any bytes.
struct Golden {
  WeightType type;
  uint32_t digest;
};
constexpr Golden kGolden[] = {
    {WeightType::f16, 0xBB2D6626},    {WeightType::bf16, 0xEA8094F0},   {WeightType::q4_0, 0x65A9D3E0},
    {WeightType::q4_1, 0xADFF5954},   {WeightType::q5_0, 0x5CE0563C},   {WeightType::q5_1, 0xD5B9E6F5},
    {WeightType::q8_0, 0x13116260},   {WeightType::q2_k, 0xDA4A3AF5},   {WeightType::q3_k, 0x47F2B9F6},
    {WeightType::q4_k, 0x552C42AE},   {WeightType::q5_k, 0x592F6D3E},   {WeightType::q6_k, 0xF16C5C63},
    {WeightType::iq4_nl, 0x2AABD69A}, {WeightType::iq4_xs, 0x8ED48B2B}, {WeightType::mxfp4, 0x909AC544},
};

TEST(Dequantize, BitsOfLibggml) {
  for (const Golden& golden : kGolden) {
    const BlockLayout& layout = layout_of(golden.type);
    const auto blocks = testing::test_blocks(64 * layout.bytes, 7);
    std::vector<float> numbers(static_cast<size_t>(64 * layout.elements));
    dequantize_row(golden.type, blocks.data(), 64 * layout.elements, numbers.data());
    testing::Digest digest;
    testing::add_numbers(numbers, &digest);
    EXPECT_EQ(digest.value(), golden.digest) << name_of(golden.type);
  }
}

template <typename Block>
std::vector<float> numbers_of(const Block& block) {
  std::vector<float> numbers(kElements<Block>);
  dequantize_row(Block::kType, reinterpret_cast<const std::byte*>(&block), kElements<Block>, numbers.data());
  return numbers;
}

TEST(Dequantize, NibblesAreHalvesOfTheBlock) {
  BlockQ40 block{.d = {kTwo}, .qs = {}};
  block.qs[3] = 0xF1;
  const auto numbers = numbers_of(block);
  EXPECT_EQ(numbers[3], 2 * (1 - 8));
  EXPECT_EQ(numbers[19], 2 * (15 - 8));
  EXPECT_EQ(numbers[0], -16);
}

TEST(Dequantize, FifthBits) {
  BlockQ51 block{.d = {kOne}, .m = {kHalf}, .qh = {}, .qs = {}};
  block.qh[2] = 0x02;  // element 17
  block.qs[1] = 0x30;  // whose lower bits are here
  const auto numbers = numbers_of(block);
  EXPECT_EQ(numbers[17], 16 + 3 + 0.5f);
  EXPECT_EQ(numbers[1], 0.5f);
}

TEST(Dequantize, SixBitScales) {
  BlockQ4K block{.d = {kOne}, .dmin = {kTwo}, .scales = {}, .qs = {}};
  block.scales[1] = 0x80 | 5;  // scale of group 1; upper bits of that of group 5: 2
  block.scales[9] = 0x73;      // lower bits of group 5: scale 3, min 7
  block.scales[5] = 0x40 | 9;  // min of group 1; upper bits of that of group 5: 1
  const ScaleAndMin one = scale_and_min(block.scales, 1), five = scale_and_min(block.scales, 5);
  EXPECT_EQ(one.scale, 5);
  EXPECT_EQ(one.min, 9);
  EXPECT_EQ(five.scale, 0x23);
  EXPECT_EQ(five.min, 0x17);
  block.qs[0] = 0x40;  // element 32 of group 1
  EXPECT_EQ(numbers_of(block)[32], 5 * 4 - 2 * 9);
  EXPECT_EQ(numbers_of(block)[160], -2 * 0x17);
}

TEST(Dequantize, Q3Scales) {
  BlockQ3K block{.hmask = {}, .qs = {}, .scales = {}, .d = {kOne}};
  block.scales[2] = 0x07;   // lower bits of group 2
  block.scales[10] = 0x31;  // upper bits of groups 2 (1) and 10 (3)
  EXPECT_EQ(q3_scale(block.scales, 2), 0x17 - 32);
  EXPECT_EQ(q3_scale(block.scales, 10), 0x30 - 32);
  EXPECT_EQ(q3_scale(block.scales, 0), -32);
  block.hmask[0] = 0x02;  // the third bit of element 32, of group 2
  block.qs[0] = 0x0C;     // whose lower two are here
  EXPECT_EQ(numbers_of(block)[32], (0x17 - 32) * 3);
}

TEST(Dequantize, SharedPowersOfTwo) {
  EXPECT_EQ(mxfp4_scale(128), 1);
  EXPECT_EQ(mxfp4_scale(0), std::ldexp(1.0f, -128));
  EXPECT_EQ(mxfp4_scale(1), std::ldexp(1.0f, -127));
  EXPECT_EQ(mxfp4_scale(2), std::ldexp(1.0f, -126));
  EXPECT_EQ(mxfp4_scale(254), std::ldexp(1.0f, 126));
  BlockMxfp4 block{.e = 127, .qs = {}};
  block.qs[0] = 0xF7;
  EXPECT_EQ(numbers_of(block)[0], 6);
  EXPECT_EQ(numbers_of(block)[16], -6);
}

TEST(Dequantize, TableOfLevels) {
  BlockIq4Xs block{.d = {kOne}, .scales_h = 0, .scales_l = {}, .qs = {}};
  block.scales_h = 2 << 6;  // for group 3
  block.scales_l[1] = 0x10;
  block.qs[48] = 0xF0;
  EXPECT_EQ(numbers_of(block)[96], 1 * -127);
  EXPECT_EQ(numbers_of(block)[112], 1 * 113);
  EXPECT_EQ(numbers_of(block)[0], -32 * -127);
}

TEST(Dequantize, SixteenBitNumbers) {
  const uint16_t f16[] = {kOne, 0xC000, 0x0001, 0x7C00};
  const uint16_t bf16[] = {0x3F80, 0xC000, 0x0001, 0x7F80};
  float numbers[4];
  dequantize_row(WeightType::f16, reinterpret_cast<const std::byte*>(f16), 4, numbers);
  EXPECT_EQ(std::vector<float>(numbers, numbers + 4),
            (std::vector<float>{1, -2, 0x1p-24f, std::numeric_limits<float>::infinity()}));
  dequantize_row(WeightType::bf16, reinterpret_cast<const std::byte*>(bf16), 4, numbers);
  EXPECT_EQ(std::vector<float>(numbers, numbers + 4),
            (std::vector<float>{1, -2, 0x1p-133f, std::numeric_limits<float>::infinity()}));
}

}  // namespace
}  // namespace qkv::dequantize_test

// Covers: qkv/quant/quantize_affine.cc
// Covers: qkv/quant/quantize_groups.cc
// Covers: qkv/quant/quantize_iq4.cc
// Covers: qkv/quant/quantize_search.cc
// Covers: qkv/quant/quantize_symmetric.cc
#include "qkv/quant/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "qkv/quant/float16.h"
#include "tests/unit/quant/row_testing.h"

namespace qkv::quantize_test {
namespace {

using testing::Kind;

std::vector<std::byte> quantized(WeightType type, const std::vector<float>& x,
                                 const float* importance = nullptr) {
  const BlockLayout& layout = layout_of(type);
  const auto width = static_cast<int64_t>(x.size());
  std::vector<std::byte> blocks(static_cast<size_t>(width / layout.elements * layout.bytes));
  quantize_row(type, width, x.data(), importance, blocks.data());
  return blocks;
}

std::vector<float> dequantized(WeightType type, const std::vector<std::byte>& blocks) {
  const BlockLayout& layout = layout_of(type);
  const int64_t width = static_cast<int64_t>(blocks.size()) / layout.bytes * layout.elements;
  std::vector<float> x(static_cast<size_t>(width));
  dequantize_row(type, blocks.data(), width, x.data());
  return x;
}

// The bytes of libggml's ggml_quantize_chunk(), which bench/peers/ggml_rows.cc compares directly: a digest
// for each kind of row, in the order of Kind.
struct Golden {
  WeightType type;
  bool weighted;
  uint32_t digests[testing::kKinds];
};
constexpr Golden kGolden[] = {
    {WeightType::f16,
     false,
     {0x91A7E121, 0x4771C155, 0x0A02B121, 0xF3C73572, 0x5DAE6F6D, 0x88FC0167, 0x943DC6E9, 0xEFF65C25,
      0x8DEA9DD5}},
    {WeightType::f16,
     true,
     {0x91A7E121, 0x4771C155, 0x0A02B121, 0xF3C73572, 0x5DAE6F6D, 0x88FC0167, 0x943DC6E9, 0xEFF65C25,
      0x8DEA9DD5}},
    {WeightType::bf16,
     false,
     {0xC62AD395, 0x4771C155, 0xF8F18489, 0x0DE74E75, 0x32DA068A, 0x84F75566, 0x4B86FE79, 0xE9C69E1B,
      0xAC141FC6}},
    {WeightType::bf16,
     true,
     {0xC62AD395, 0x4771C155, 0xF8F18489, 0x0DE74E75, 0x32DA068A, 0x84F75566, 0x4B86FE79, 0xE9C69E1B,
      0xAC141FC6}},
    {WeightType::q4_0,
     false,
     {0x3C21C861, 0xA8AB5BD5, 0x53F536C9, 0x5FB995B2, 0x39A655CA, 0xBCD5D260, 0x8F8A617D, 0xA08E0FDF,
      0x011688D5}},
    {WeightType::q4_0,
     true,
     {0xCD2465B6, 0xE801B1D5, 0x26FD596C, 0xB2521C6A, 0x5B60FFB3, 0x9020DB30, 0xFB897993, 0x31C31E0B,
      0xE801B1D5}},
    {WeightType::q4_1,
     false,
     {0xB4A587F2, 0xB0C2FA65, 0xC76F4AE9, 0xCF2A4636, 0x87543A9A, 0x3BD1EB3C, 0xA1F09B19, 0x7CBF88AD,
      0xD6685265}},
    {WeightType::q4_1,
     true,
     {0x5D57E4ED, 0xB0C2FA65, 0x220FD379, 0x4FA2EC9B, 0xDD56C716, 0x674175EB, 0x47A5CDAC, 0x7CBF88AD,
      0xD6685265}},
    {WeightType::q5_0,
     false,
     {0x88AA13F7, 0x5A9EE22D, 0x133C2871, 0x485E2FD5, 0x195874BF, 0x5B07822E, 0x5BB91CD4, 0x9AE016B0,
      0xC0C2F6F5}},
    {WeightType::q5_0,
     true,
     {0x465C16F9, 0x6DC7CFF5, 0x0322765A, 0x5C2320D4, 0x2D365075, 0xC14053FE, 0x4BDA15A3, 0xAFCA5F5C,
      0x6DC7CFF5}},
    {WeightType::q5_1,
     false,
     {0x776B6D85, 0x93724285, 0x34E1A039, 0xF4099B10, 0x8DA88F38, 0xCD92E299, 0xEC9E6B96, 0x33902639,
      0xAA132F85}},
    {WeightType::q5_1,
     true,
     {0xD06B1D4D, 0x93724285, 0xFBA0F6F4, 0x0F8E3552, 0xD750B92A, 0x809D82C0, 0xF93C45DE, 0x33902639,
      0xAA132F85}},
    {WeightType::q8_0,
     false,
     {0xAC4BCB46, 0xA2C0E255, 0x314630F1, 0x8BB62CF1, 0xB4FE208D, 0x87060DBF, 0xDB847157, 0x2CD2BC20,
      0xA2C0E255}},
    {WeightType::q8_0,
     true,
     {0xAC4BCB46, 0xA2C0E255, 0x314630F1, 0x8BB62CF1, 0xB4FE208D, 0x87060DBF, 0xDB847157, 0x2CD2BC20,
      0xA2C0E255}},
    {WeightType::q2_k,
     false,
     {0xB3B5AC2C, 0x5EEBDC65, 0x0E0AF501, 0x42E43A58, 0x7F5C3C86, 0xA8FAF2D2, 0x30E52A23, 0x58933CFE,
      0x5EEBDC65}},
    {WeightType::q2_k,
     true,
     {0xC75F02F5, 0x5EEBDC65, 0x0E0AF501, 0x51980F3D, 0x4A2581AB, 0x38B08B7F, 0x7153E66E, 0x1AEFC6C6,
      0x5EEBDC65}},
    {WeightType::q3_k,
     false,
     {0x0A2BD3B1, 0xF0798AB5, 0x6BC2D6B9, 0xBB7E3532, 0x0F9243B8, 0xFFAFFB92, 0x0AB05988, 0x3F856A9B,
      0xF0798AB5}},
    {WeightType::q3_k,
     true,
     {0x6CE8A62E, 0xF0798AB5, 0xFD924509, 0x7A8FA312, 0x69DCC4C6, 0xCE270779, 0xF395BABB, 0x3F856A9B,
      0xF0798AB5}},
    {WeightType::q4_k,
     false,
     {0x268DFAB7, 0x5D7E2A45, 0xC4B2B391, 0x33A19D7E, 0x52600B12, 0x46596FC7, 0x58FA3B24, 0x3A4A742F,
      0x5D7E2A45}},
    {WeightType::q4_k,
     true,
     {0x6AAC3C02, 0x5D7E2A45, 0xC4B2B391, 0x34E30493, 0xA6CC793C, 0x5AAAADE5, 0xE6585E2A, 0xE7C7A9F3,
      0x5D7E2A45}},
    {WeightType::q5_k,
     false,
     {0xE8B917B7, 0x7EC87B45, 0x17539BED, 0x467F690F, 0xD9D0E87F, 0x588434BA, 0x94B7EEA3, 0xAC4AE02F,
      0x7EC87B45}},
    {WeightType::q5_k,
     true,
     {0x7C85F785, 0x7EC87B45, 0x5D893FA4, 0xC8AB2FD3, 0x8970AED6, 0x569604F1, 0x570FDA00, 0x75760DE2,
      0x7EC87B45}},
    {WeightType::q6_k,
     false,
     {0xBC325944, 0x72E677D5, 0x783588E1, 0xA862BB6A, 0x4D64F10A, 0x824FA03E, 0x0E9E61B6, 0x72E677D5,
      0x72E677D5}},
    {WeightType::q6_k,
     true,
     {0x2FE2BC94, 0x72E677D5, 0xDC8C7245, 0x71129AA5, 0xD59561E6, 0x2FCA225F, 0x9DC21EF6, 0x47FC83A4,
      0x72E677D5}},
    {WeightType::iq4_nl,
     false,
     {0xDD5CEB37, 0x362210D5, 0xEBC97E71, 0xFEE2F8CA, 0xC67F97F8, 0x70F7BD49, 0xEE9D6923, 0x08070455,
      0x362210D5}},
    {WeightType::iq4_nl,
     true,
     {0xF275BF1E, 0x362210D5, 0x6946297D, 0xDAED7E0E, 0x7380163C, 0x5DF7F70A, 0x4C4DCB1F, 0x362210D5,
      0x362210D5}},
    {WeightType::iq4_xs,
     false,
     {0xB01A3153, 0xBC58F1B5, 0xB0E21979, 0x4A52E03F, 0x077FDF06, 0x2DDA4609, 0xA2B82746, 0xBC58F1B5,
      0xBC58F1B5}},
    {WeightType::iq4_xs,
     true,
     {0x1BDCFF7C, 0xBC58F1B5, 0x587AAC96, 0x81C805C5, 0x584A8A4C, 0x7F8BA5D8, 0x10DA8393, 0xBC58F1B5,
      0xBC58F1B5}},
    {WeightType::mxfp4,
     false,
     {0x13CCFD2F, 0xCFE26B6D, 0xE86DE465, 0xBC70E38D, 0x8FA9D366, 0x1D526506, 0xEAD9918B, 0x3377D014,
      0xE9EACDC3}},
    {WeightType::mxfp4,
     true,
     {0x13CCFD2F, 0xCFE26B6D, 0xE86DE465, 0xBC70E38D, 0x8FA9D366, 0x1D526506, 0xEAD9918B, 0x3377D014,
      0xE9EACDC3}},
};

TEST(Quantize, BytesOfLibggml) {
  for (const Golden& golden : kGolden) {
    const int64_t elements = layout_of(golden.type).elements;
    for (int kind = 0; kind < testing::kKinds; ++kind) {
      testing::Digest digest;
      for (const int64_t blocks : testing::kWidths) {
        for (uint64_t seed = 0; seed < 3; ++seed) {
          const auto x = testing::test_row(static_cast<Kind>(kind), blocks * elements, seed);
          const auto importance = testing::test_importance(blocks * elements, seed);
          digest.add(quantized(golden.type, x, golden.weighted ? importance.data() : nullptr));
        }
      }
      EXPECT_EQ(digest.value(), golden.digests[kind])
          << name_of(golden.type) << (golden.weighted ? " with importance" : "") << ", kind " << kind;
    }
  }
}

// Root of the mean squared error of normal numbers, in units of their own.
double relative_error(WeightType type) {
  double error = 0, size = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto x = testing::test_row(Kind::normal, 512, seed);
    const auto y = dequantized(type, quantized(type, x));
    for (size_t i = 0; i < x.size(); ++i) {
      error += std::pow(double{x[i]} - double{y[i]}, 2);
      size += std::pow(double{x[i]}, 2);
    }
  }
  return std::sqrt(error / size);
}

TEST(Quantize, ErrorIsThatOfTheBits) {
  const std::pair<WeightType, double> bounds[] = {
      {WeightType::f16, 0.00024},  {WeightType::bf16, 0.0018},  {WeightType::q4_0, 0.095},
      {WeightType::q4_1, 0.087},   {WeightType::q5_0, 0.047},   {WeightType::q5_1, 0.042},
      {WeightType::q8_0, 0.006},   {WeightType::q2_k, 0.33},    {WeightType::q3_k, 0.17},
      {WeightType::q4_k, 0.08},    {WeightType::q5_k, 0.04},    {WeightType::q6_k, 0.02},
      {WeightType::iq4_nl, 0.085}, {WeightType::iq4_xs, 0.086}, {WeightType::mxfp4, 0.13},
  };
  for (const auto& [type, bound] : bounds) {
    EXPECT_LT(relative_error(type), bound) << name_of(type);
    EXPECT_GT(relative_error(type), 0.7 * bound) << name_of(type) << ": the bound is loose";
  }
  EXPECT_EQ(relative_error(WeightType::f32), 0);
}

TEST(Quantize, Q8ErrorIsAtMostHalfAStep) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto x = testing::test_row(seed % 2 ? Kind::outlier : Kind::normal, 32, seed);
    const auto y = dequantized(WeightType::q8_0, quantized(WeightType::q8_0, x));
    float max = 0;
    for (const float number : x) max = std::max(max, std::fabs(number));
    // Half a step, and the rounding of the scale to f16's eleven bits.
    const float bound = max * (0.5f / 127 + 0x1p-11f) * 1.0001f;
    for (size_t i = 0; i < x.size(); ++i) EXPECT_LE(std::fabs(x[i] - y[i]), bound);
  }
}

// These formats give the extreme number of a block a level of its own, which fixes the scale.
TEST(Quantize, NumbersOfAFormatStay) {
  using enum WeightType;
  for (const WeightType type : {f32, f16, bf16, q4_0, q5_0, q8_0, mxfp4}) {
    for (const Kind kind :
         {Kind::normal, Kind::zeros, Kind::constant, Kind::outlier, Kind::few_values, Kind::large}) {
      const auto blocks = quantized(type, testing::test_row(kind, 256, 1));
      const auto numbers = dequantized(type, blocks);
      EXPECT_EQ(dequantized(type, quantized(type, numbers)), numbers) << name_of(type);
    }
  }
}

TEST(Quantize, ZerosStayZeros) {
  for (int t = 0; t < kWeightTypes; ++t) {
    const auto type = static_cast<WeightType>(t);
    const auto x = testing::test_row(Kind::zeros, 512, 1), importance = testing::test_importance(512, 1);
    for (const float* weights : {static_cast<const float*>(nullptr), importance.data()}) {
      const auto y = dequantized(type, quantized(type, x, weights));
      EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](float number) { return number == 0; })) << name_of(type);
    }
  }
}

TEST(Quantize, ImportanceLowersTheWeighedError) {
  using enum WeightType;
  for (const WeightType type : {q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, iq4_xs}) {
    double plain = 0, weighed = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const auto x = testing::test_row(Kind::normal, 512, seed);
      const auto importance = testing::test_importance(512, seed);
      const auto a = dequantized(type, quantized(type, x));
      const auto b = dequantized(type, quantized(type, x, importance.data()));
      for (size_t i = 0; i < x.size(); ++i) {
        plain += importance[i] * std::pow(double{x[i]} - double{a[i]}, 2);
        weighed += importance[i] * std::pow(double{x[i]} - double{b[i]}, 2);
      }
    }
    EXPECT_LT(weighed, 0.97 * plain) << name_of(type);
  }
}

// So that rows can be cut anywhere between blocks, and bytes lie anywhere in a file.
TEST(Quantize, BlocksOfARowAreIndependent) {
  for (int t = 0; t < kWeightTypes; ++t) {
    const auto type = static_cast<WeightType>(t);
    const auto x = testing::test_row(Kind::normal, 512, 3);
    const auto whole = quantized(type, x);
    std::vector<std::byte> parts(whole.size() + 1);
    for (size_t half = 0; half < 2; ++half)
      quantize_row(type, 256, x.data() + 256 * half, nullptr, parts.data() + 1 + half * whole.size() / 2);
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), parts.begin() + 1)) << name_of(type);
    std::vector<float> numbers(512);
    dequantize_row(type, parts.data() + 1, 512, numbers.data());
    EXPECT_EQ(numbers, dequantized(type, whole)) << name_of(type);
  }
}

}  // namespace
}  // namespace qkv::quantize_test

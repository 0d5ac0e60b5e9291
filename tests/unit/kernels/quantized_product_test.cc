// Covers: qkv/quant/block_integers.cc, qkv/kernels/generic/quantized.cc, qkv/kernels/cpu/quantized*.cc
// Products by quantised weights: every table gives the bits of the plain loops, which are near the product by
// the decoded numbers; blocks as integers are the numbers that dequantize_row() gives.
#include "qkv/kernels/quantized_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "qkv/base/parallel.h"
#include "qkv/base/rng.h"
#include "qkv/kernels/quantized_kernels.h"
#include "qkv/quant/block_integers.h"
#include "qkv/quant/blocks.h"
#include "qkv/quant/quantize.h"

namespace qkv::quantized_product_test {
namespace {

constexpr WeightType kTypes[] = {WeightType::q4_0, WeightType::q4_1, WeightType::q5_0,   WeightType::q5_1,
                                 WeightType::q8_0, WeightType::q2_k, WeightType::q3_k,   WeightType::q4_k,
                                 WeightType::q5_k, WeightType::q6_k, WeightType::iq4_nl, WeightType::iq4_xs,
                                 WeightType::mxfp4};

// Any bytes are blocks, random ones or `fill`; factors are made small enough that nothing overflows.
std::vector<std::byte> random_blocks(WeightType type, int64_t rows, int64_t k, uint32_t site,
                                     std::optional<std::byte> fill = {}) {
  const BlockLayout& layout = layout_of(type);
  std::vector<std::byte> bytes(rows * k / layout.elements * layout.bytes);
  const RandomStream stream{.seed = 7, .step = 0, .site = site};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = fill.value_or(
        static_cast<std::byte>(static_cast<int>(stream.uniform(static_cast<int64_t>(i)) * 256)));
  const auto set_f16 = [&](int64_t block, int64_t at) {
    const auto bits = static_cast<uint16_t>(0x1C00 + block * 37 % 0x0C00 + (block % 3 == 0 ? 0x8000 : 0));
    std::memcpy(bytes.data() + block * layout.bytes + at, &bits, 2);
  };
  for (int64_t b = 0; b < rows * k / layout.elements; ++b) switch (type) {
      case WeightType::mxfp4:
        bytes[b * layout.bytes] = static_cast<std::byte>(110 + b % 20);
        break;
      case WeightType::q4_1:
      case WeightType::q5_1:
      case WeightType::q4_k:
      case WeightType::q5_k:
        set_f16(b, 0), set_f16(b, 2);
        break;
      case WeightType::q2_k:
        set_f16(b, 80), set_f16(b, 82);
        break;
      case WeightType::q3_k:
        set_f16(b, 108);
        break;
      case WeightType::q6_k:
        set_f16(b, 208);
        break;
      default:
        set_f16(b, 0);
    }
  return bytes;
}

std::vector<float> normals(int64_t n, uint32_t site) {
  const RandomStream stream{.seed = 8, .step = 0, .site = site};
  std::vector<float> x(n);
  for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(stream.normal(i));
  return x;
}

// Activations in 8 bits.
struct Rows {
  std::vector<int16_t> x, sums;
  std::vector<int8_t> bytes;
  std::vector<float> e;
  QuantizedRows view;
  Rows(const QuantizedKernels& table, int64_t rows, int64_t k, int64_t block,
       const std::vector<float>& values)
      : sums(rows * k / kMinimumGroup), e(rows * k / block) {
    const int64_t stride = k + 3;
    x.resize(rows * stride), bytes.resize(rows * stride);
    for (int64_t r = 0; r < rows; ++r)
      table.quantize(k, block, values.data() + r * k, x.data() + r * stride, bytes.data() + r * stride,
                     e.data() + r * (k / block), sums.data() + r * (k / kMinimumGroup));
    view = {rows, k, block, stride, x.data(), bytes.data(), e.data(), sums.data()};
  }
};

TEST(BlockIntegers, AreTheNumbersOfTheBlock) {
  for (const WeightType type : kTypes) {
    const BlockLayout& layout = layout_of(type);
    const auto bytes = random_blocks(type, 1, 2048, 1);
    std::vector<float> decoded(2048);
    dequantize_row(type, bytes.data(), 2048, decoded.data());
    for (int64_t b = 0; b < 2048 / layout.elements; ++b) {
      const BlockIntegers n = block_integers(type, bytes.data() + b * layout.bytes);
      for (int64_t i = 0; i < layout.elements; ++i) {
        const double minimum = has_minima(type) ? double{n.m} * n.u[i / kMinimumGroup] : 0;
        const double want = decoded[b * layout.elements + i], got = double{n.d} * n.w[i] + minimum;
        ASSERT_LE(std::abs(want - got), 0x1p-22 * (std::abs(double{n.d} * n.w[i]) + std::abs(minimum)))
            << name_of(type) << ", element " << i;
        ASSERT_LT(std::abs(n.w[i]), 1 << 13);
      }
    }
  }
}

TEST(QuantizedKernels, GiveTheBitsOfThePlainLoops) {
  const QuantizedKernels& plain = generic_quantized_kernels();
  for (int t = 1; t < quantized_kernels_count(); ++t)
    for (const WeightType type : kTypes) {
      const QuantizedKernels& table = quantized_kernels(t);
      const int64_t block = layout_of(type).elements;
      // 25 and 50 blocks of 256, and 100 and 200 of 32, are more than a kernel keeps of eight and four rows.
      for (const int64_t blocks : {1, 2, 3, 4, 5, 8, 17, 18, 25, 50, 100, 200})
        for (const int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64}) {
          if (blocks * block > 12800) continue;
          // Up to 14 rows, or 16 and more, which fill tiles.
          const int64_t k = blocks * block, some = (blocks * 5 + n) % 14,
                        rows = blocks > 20 ? 1 + n % 3
                               : some < 5  ? 16 + 4 * some
                                           : some - 4;
          SCOPED_TRACE(::testing::Message()
                       << table.name << ", " << name_of(type) << ", k " << k << ", n " << n);
          const auto bytes = random_blocks(type, n, k, static_cast<uint32_t>(n));
          const MatrixView b{bytes.data(), type, k, true};
          auto values = normals(rows * k, static_cast<uint32_t>(k));
          for (int64_t i = 0; i < block; ++i) values[i] = i % 2 == 0 ? 0.0F : -0.0F;  // a block of zeros
          const Rows want(plain, rows, k, block, values), got(table, rows, k, block, values);
          ASSERT_EQ(want.x, got.x);
          ASSERT_EQ(want.bytes, got.bytes);
          ASSERT_EQ(want.e, got.e);
          ASSERT_EQ(want.sums, got.sums);
          std::vector<float> panel(rows * kPanelColumns), dots(rows * n), expected(rows * n);
          table.panel(got.view, b, n, panel.data(), kPanelColumns);
          for (int64_t r = 0; r < rows; ++r) {
            table.dots(got.view, r, b, n, dots.data() + r * n);
            plain.dots(want.view, r, b, n, expected.data() + r * n);
          }
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < n; ++j) {
              ASSERT_EQ(expected[r * n + j], dots[r * n + j]) << r << ", " << j;
              ASSERT_EQ(expected[r * n + j], panel[r * kPanelColumns + j]) << r << ", " << j;
            }
        }
    }
}

// The largest numbers by the largest activations, where sums in 16 bits are next to their bounds.
TEST(QuantizedKernels, HoldTheLargestSums) {
  const QuantizedKernels& plain = generic_quantized_kernels();
  for (int t = 1; t < quantized_kernels_count(); ++t)
    for (const WeightType type : kTypes)
      for (const int fill : {0xFF, 0x80, 0x7F, 0x00, 0xF0, 0x0F})
        for (const int signs : {0, 1, 2, 3}) {  // all positive, all negative, by turns, by runs of 16
          const QuantizedKernels& table = quantized_kernels(t);
          const int64_t k = 512, rows = 18, n = 9;
          const auto bytes = random_blocks(type, n, k, 1, static_cast<std::byte>(fill));
          std::vector<float> values(rows * k, 1.0F);
          for (size_t i = 0; i < values.size(); ++i)
            if (signs == 1 || (signs == 2 && i % 2 == 1) || (signs == 3 && i / 16 % 2 == 1)) values[i] = -1;
          const Rows a(plain, rows, k, layout_of(type).elements, values);
          const MatrixView b{bytes.data(), type, k, true};
          std::vector<float> panel(rows * kPanelColumns), dots(n), want(n);
          plain.dots(a.view, 0, b, n, want.data());
          table.dots(a.view, 0, b, n, dots.data());
          table.panel(a.view, b, n, panel.data(), kPanelColumns);
          for (int64_t j = 0; j < n; ++j) {
            ASSERT_EQ(want[j], dots[j]) << table.name << ", " << name_of(type) << ", " << fill;
            for (int64_t r = 0; r < rows; ++r)
              ASSERT_EQ(want[j], panel[r * kPanelColumns + j])
                  << table.name << ", " << name_of(type) << ", " << fill << ", row " << r;
          }
        }
}

TEST(QuantizedKernels, RoundActivationsToEvenAndKeepWhatIsNotFinite) {
  for (int t = 0; t < quantized_kernels_count(); ++t) {
    std::vector<float> x(32 * 5, 1.0F);
    x[0] = 127, x[1] = 0.5F, x[2] = 1.5F, x[3] = -2.5F;  // e is 1
    x[40] = INFINITY, x[70] = NAN;
    for (int i = 96; i < 128; ++i) x[i] = 1e-38F;
    const Rows got(quantized_kernels(t), 1, 160, 32, x);
    EXPECT_EQ(std::vector<int16_t>(got.x.begin(), got.x.begin() + 5),
              (std::vector<int16_t>{127, 0, 2, -2, 1}));
    EXPECT_EQ(got.e[0], 1);
    EXPECT_TRUE(std::isnan(got.e[1]) && std::isnan(got.e[2]));
    EXPECT_EQ(got.e[3], 0);
    EXPECT_EQ(got.sums[0], 127 + 0 + 2 - 2 + 12);
  }
}

// The whole product: any number of rows, threads and cuts gives each row the bits that it has alone; and it
// is near the product by decoded numbers, whose difference is the rounding of activations: half a step each.
TEST(QuantizedProduct, GivesARowItsBitsInAnyCompany) {
  for (const WeightType type : kTypes) {
    const int64_t k = 512, n = 150, m = 13;
    const auto bytes = random_blocks(type, n, k, 3);
    const auto a = normals(m * k, 4), bias = normals(n, 5);
    Product p{.m = m,
              .n = n,
              .k = k,
              .a = dense(a.data(), DType::f32, k),
              .b = {bytes.data(), type, k, true},
              .bias = bias.data(),
              .c_stride = n};
    std::vector<float> all(m * n), one(n), decoded(k);
    p.c = all.data();
    matrix_product(p);
    for (int64_t r = 0; r < m; ++r) {
      Product alone = p;
      alone.m = 1, alone.a = p.a.from(r, 0), alone.c = one.data();
      matrix_product(alone);
      ASSERT_TRUE(std::equal(one.begin(), one.end(), all.begin() + r * n)) << name_of(type) << ", row " << r;
    }
    const int threads = num_threads();
    for (const int team : {1, 2, 3}) {
      set_num_threads(team);
      std::vector<float> again(m * n);
      p.c = again.data();
      matrix_product(p);
      ASSERT_EQ(all, again) << name_of(type) << ", " << team << " threads";
    }
    set_num_threads(threads);
    for (int64_t j = 0; j < n; ++j) {
      dequantize_row(type, static_cast<const std::byte*>(p.b.from(j, 0).data), k, decoded.data());
      for (int64_t r = 0; r < m; ++r) {
        double want = bias[j], bound = std::abs(bias[j]) * 0x1p-22;
        for (int64_t l = 0; l < k; ++l) {
          want += double{decoded[l]} * a[r * k + l];
          bound += std::abs(double{decoded[l]}) * (4.5 / 254 + 1e-4 * std::abs(a[r * k + l]));
        }
        ASSERT_LE(std::abs(all[r * n + j] - want), bound) << name_of(type) << ", " << r << ", " << j;
      }
    }
  }
}

// The gradient by the input: B is decoded.
TEST(QuantizedProduct, DecodesWhereBIsNotTransposed) {
  const int64_t k = 150, n = 512, m = 7;
  const auto bytes = random_blocks(WeightType::q6_k, k, n, 3);
  const auto a = normals(m * k, 4);
  std::vector<float> decoded(k * n), want(m * n), got(m * n);
  for (int64_t l = 0; l < k; ++l)
    dequantize_row(WeightType::q6_k, bytes.data() + l * n / 256 * 210, n, decoded.data() + l * n);
  Product p{.m = m,
            .n = n,
            .k = k,
            .a = dense(a.data(), DType::f32, k),
            .b = {bytes.data(), WeightType::q6_k, n},
            .c = got.data(),
            .c_stride = n};
  matrix_product(p);
  p.b = dense(decoded.data(), DType::f32, n);
  p.c = want.data();
  generic_matrix_product(p);
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(want[i], got[i], 1e-4 * (1 + std::abs(want[i])));
}

}  // namespace
}  // namespace qkv::quantized_product_test

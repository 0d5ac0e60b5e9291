// Products of tiles against f64: all of the code with emulated tiles, if there is AVX-512, and with the
// processor's if it has them.
// Covers: qkv/kernels/tile/available.cc, qkv/kernels/tile/block.cc, qkv/kernels/tile/share.cc
#include "qkv/kernels/tile_product.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "qkv/base/parallel.h"
#include "tests/unit/kernels/product_testing.h"

namespace qkv::tile_product_test {
namespace {

class TileProduct : public ::testing::TestWithParam<TileUnit> {
 protected:
  void SetUp() override {
    if (!tiles_available(GetParam()))
      GTEST_SKIP() << (GetParam() == TileUnit::amx ? "no AMX here, or QKV_MAX_ISA excludes it"
                                                   : "no AVX-512 here, or QKV_MAX_ISA excludes it");
  }
  void TearDown() override { set_num_threads(threads_); }

  const int threads_ = num_threads();
};
INSTANTIATE_TEST_SUITE_P(, TileProduct, ::testing::Values(TileUnit::emulated, TileUnit::amx),
                         [](const auto& unit) { return unit.param == TileUnit::amx ? "Amx" : "Emulated"; });

constexpr int64_t kAll = int64_t{1} << 40;
// One block; blocks of a panel; several passes with A kept and packed again; B packed a panel at a time.
const std::vector<TileBlocking> kBlockings = {
    {.rows = kAll, .columns = kAll, .depth = kAll},
    {.rows = 32, .columns = 32, .depth = 32},
    {.rows = 64, .columns = kAll, .depth = 64},
    {.rows = 64, .columns = 64, .depth = 96},
    {.rows = 64, .columns = 32, .depth = 64, .resident_bytes = 0},
    {.rows = 96, .columns = 64, .depth = kAll, .packed_bytes = 1},
};

template <typename T>
auto bits(T x) {
  return std::bit_cast<std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>(x);
}

template <typename Out>
void test_product(TileUnit unit, const TileBlocking& blocking, Extents e, int flags, int64_t gap) {
  const bool at = flags & 1, bt = flags & 2, bias = flags & 4, accumulate = flags & 8;
  SCOPED_TRACE(::testing::Message() << "m " << e.m << ", n " << e.n << ", k " << e.k << (at ? ", A^T" : "")
                                    << (bt ? ", B^T" : "") << (bias ? ", bias" : "")
                                    << (accumulate ? ", accumulate" : "") << ", gap " << gap << ", blocks of "
                                    << blocking.rows << ", " << blocking.columns << ", " << blocking.depth);
  const ProductCase<BFloat16, Out> c(e, at, bt, bias, accumulate, gap);
  set_num_threads(1);
  const Buffer<Out> one = c.run([&](const Product& p) { tile_product(p, unit, blocking); });
  c.check(one, "one thread");
  for (const int threads : {2, 5}) {
    set_num_threads(threads);
    const Buffer<Out> more = c.run([&](const Product& p) { tile_product(p, unit, blocking); });
    for (int64_t i = 0; i < one.size(); ++i)
      ASSERT_EQ(bits(more[i]), bits(one[i]))
          << threads << " threads: " << more.at(i) << " at " << i << ", one: " << one.at(i);
    EXPECT_TRUE(more.guards_intact());
  }
}

template <typename Out>
void test_edges(TileUnit unit) {
  const std::vector<Extents> edges = {{1, 1, 1},    {31, 33, 2},   {32, 32, 32},  {17, 47, 64},
                                      {40, 1, 65},  {65, 63, 97},  {2, 100, 161}, {97, 2, 200},
                                      {96, 65, 96}, {129, 98, 131}};
  for (size_t i = 0; i < edges.size(); ++i)
    for (int flags = 0; flags < 16; ++flags)
      for (size_t b = 0; b < kBlockings.size(); ++b) {
        if ((std::popcount(unsigned(flags)) + i + b) % 2) continue;  // all pairs of settings still occur
        test_product<Out>(unit, kBlockings[b], edges[i], flags, i / 2 % 2 ? 5 : 0);
        if (::testing::Test::HasFailure()) return;
      }
}
TEST_P(TileProduct, EdgesToF32) {
  test_edges<float>(GetParam());
}
TEST_P(TileProduct, EdgesToBf16) {
  test_edges<BFloat16>(GetParam());
}

// Streaming stores: aligned rows and whole blocks bypass the caches, all others do not.
TEST_P(TileProduct, Streams) {
  const TileBlocking blocking{.rows = 64, .columns = 64, .depth = 64, .stream = true};
  for (const Extents e : {Extents{64, 64, 64}, {70, 96, 70}, {33, 80, 40}, {40, 75, 33}})
    for (int flags = 0; flags < 16; ++flags)
      for (const int64_t gap : {0, 1}) {
        test_product<float>(GetParam(), blocking, e, flags, gap);
        test_product<BFloat16>(GetParam(), blocking, e, flags, gap);
        if (HasFailure()) return;
      }
}

// As matrix_product() cuts them: one pass, several, and more of k than stays packed.
TEST_P(TileProduct, AsCutByDefault) {
  struct {
    Extents extents;
    int flags;
  } cases[] = {{{600, 300, 100}, 2}, {{300, 520, 96}, 1}, {{290, 290, 1100}, 0}, {{40, 70, 16500}, 0}};
  for (const auto& [e, flags] : cases) {
    const Product p{.m = e.m, .n = e.n, .k = e.k, .a = {.transposed = (flags & 1) != 0}};
    test_product<float>(GetParam(), tile_blocking(p), e, flags, 0);
  }
}

// To nearest, ties to even; NaN stays NaN and infinity infinity, as BFloat16(float) has it.
TEST_P(TileProduct, RoundsAsBFloat16Does) {
  const std::vector<float> values = {1.0f,       0x1.01p0f,       0x1.03p0f,     0x1.010002p0f,
                                     -0x1.03p0f, 0x1.FFFFFEp127f, std::nanf(""), INFINITY,
                                     -INFINITY,  0x1p-130f};
  const auto n = static_cast<int64_t>(values.size());
  std::vector<BFloat16> a(1), b(n), c(n);
  const Product p{.m = 1,
                  .n = n,
                  .k = 1,
                  .out = DType::bf16,
                  .a = dense(a.data(), DType::bf16, 1),
                  .b = dense(b.data(), DType::bf16, n),
                  .bias = values.data(),
                  .c = c.data(),
                  .c_stride = n};
  tile_product(p, GetParam(), tile_blocking(p));
  for (int64_t i = 0; i < n; ++i) {
    const bool flushed = GetParam() == TileUnit::amx && std::fpclassify(values[i]) == FP_SUBNORMAL;
    EXPECT_EQ(c[i].bits, flushed ? 0 : BFloat16(values[i]).bits) << values[i];
  }
}

// Old contents of C, and memory beyond k and n, do not affect the result.
TEST_P(TileProduct, IgnoresOldContents) {
  const int64_t m = 35, n = 37, k = 33, stride = 64;
  const auto nan = std::nanf("");
  auto a = Buffer<BFloat16>::constant(m * stride, nan), b = Buffer<BFloat16>::constant(n * stride, nan);
  auto c = Buffer<float>::constant(m * stride, nan);
  for (int64_t l = 0; l < k; ++l) {
    for (int64_t i = 0; i < m; ++i) a[i * stride + l] = BFloat16(1.0f);
    for (int64_t j = 0; j < n; ++j) b[j * stride + l] = BFloat16(2.0f);
  }
  const Product p{.m = m,
                  .n = n,
                  .k = k,
                  .a = dense(a.data(), DType::bf16, stride),
                  .b = dense(b.data(), DType::bf16, stride, true),
                  .c = c.data(),
                  .c_stride = stride};
  tile_product(p, GetParam(), {.rows = 32, .columns = 32, .depth = 32});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < stride; ++j) {
      if (j < n)
        ASSERT_EQ(c[i * stride + j], 2.0f * k);
      else
        ASSERT_TRUE(std::isnan(c[i * stride + j]));
    }
}

// The processor's tiles and the emulated ones agree bit for bit where sums are exact in any order.
TEST(TileUnits, AgreeOnIntegers) {
  if (!tiles_available(TileUnit::amx)) GTEST_SKIP() << "no AMX here, or QKV_MAX_ISA excludes it";
  const int64_t m = 70, n = 90, k = 300;
  Buffer<BFloat16> a(m * k), b(k * n);
  for (int64_t i = 0; i < a.size(); ++i) a[i] = BFloat16(static_cast<float>(i % 17 - 8));
  for (int64_t i = 0; i < b.size(); ++i) b[i] = BFloat16(static_cast<float>(i % 19 - 9));
  Buffer<float> amx(m * n), emulated(m * n);
  Product p{.m = m, .n = n, .k = k, .a = dense(a.data(), DType::bf16, k)};
  p.b = dense(b.data(), DType::bf16, n), p.c_stride = n;
  p.c = amx.data();
  tile_product(p, TileUnit::amx, tile_blocking(p));
  p.c = emulated.data();
  tile_product(p, TileUnit::emulated, tile_blocking(p));
  for (int64_t i = 0; i < m * n; ++i) ASSERT_EQ(amx[i], emulated[i]);
}

// oneDNN computes f32, few rows (decoding), few columns and short sums.
TEST(TileUnits, TakesLargeProductsOfBf16) {
  Product p{.m = 1024, .n = 768, .k = 768};
  p.a.type = p.b.type = WeightType::bf16;
  EXPECT_EQ(tile_product_takes(p), tiles_available(TileUnit::amx));
  for (int64_t Product::*extent : {&Product::m, &Product::n, &Product::k}) {
    Product few = p;
    few.*extent = 16;
    EXPECT_FALSE(tile_product_takes(few));
  }
  p.a.type = p.b.type = WeightType::f32;
  EXPECT_FALSE(tile_product_takes(p));
}

TEST(TileUnits, FollowTheCap) {
  EXPECT_GE(tiles_available(TileUnit::emulated), tiles_available(TileUnit::amx));
  EXPECT_FALSE(tiles_available(TileUnit::amx) && max_isa() < Isa::amx);
  EXPECT_FALSE(tiles_available(TileUnit::emulated) && max_isa() < Isa::avx512);
}

}  // namespace
}  // namespace qkv::tile_product_test

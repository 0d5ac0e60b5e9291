// Products for relative encodings of the scores.
#include "qkv/ops/relative_products.h"

#include <cmath>

#include "tests/gradient/gradient_check.h"

namespace qkv::relative_products_test {
namespace {

using testing::uniform;
using Tensors = std::vector<Tensor>;

TEST(RelativeProductsGradient, IsTheDifference) {
  struct Case {
    int64_t rows, x_heads, table_heads, heads, distances, width;
  };
  for (const Case& c : {Case{5, 2, 2, 2, 3, 4}, Case{1, 4, 1, 4, 7, 3}, Case{6, 1, 3, 3, 2, 5},
                        Case{3, 2, 1, 4, 1, 1}, Case{0, 1, 1, 1, 2, 2}})
    testing::expect_gradients(
        [&](const Tensors& t) {
          return Tensors{relative_products({t[0], 1, c.x_heads, c.width}, {t[1], 2, c.table_heads, c.width},
                                           c.heads, 0.75F)};
        },
        {uniform({c.rows, c.x_heads * c.width + 3}, 1),
         uniform({c.distances, c.table_heads * c.width + 2}, 2)},
        {.h = 0x1p-3, .roundings = 32, .bf16_roundings = 6});
}

TEST(ShiftedGradient, IsTheDifference) {
  testing::expect_gradients([](const Tensors& t) { return Tensors{shifted(t[0], t[1])}; },
                            {uniform({7, 5}, 1), uniform({5}, 2)}, {.h = 0x1p-3, .keep_f32 = {1}});
}

TEST(RelativeProducts, AreInnerProductsOfTheHeads) {
  const Tensor x = uniform({3, 8}, 1), table = uniform({4, 2}, 2);
  const Tensor y = relative_products({x, 0, 4, 2}, {table, 0, 1, 2}, 4, 2);
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t d = 0; d < 4; ++d) {
        const float* a = x.data<float>() + r * 8 + h * 2;
        const float* b = table.data<float>() + d * 2;
        EXPECT_NEAR(y.data<float>()[r * 16 + h * 4 + d], 2 * (a[0] * b[0] + a[1] * b[1]), 1e-6);
      }
}

TEST(RelativeProducts, RefusesHeadsThatDoNotFit) {
  const Tensor x = uniform({3, 8}, 1);
  EXPECT_THROW(relative_products({x, 0, 4, 2}, {x, 0, 4, 2}, 6, 1), Error);
  EXPECT_THROW(relative_products({x, 0, 4, 2}, {x, 0, 2, 4}, 4, 1), Error);
  EXPECT_THROW(relative_products({x, 1, 4, 2}, {x, 0, 4, 2}, 4, 1), Error);
  EXPECT_THROW(shifted(x, uniform({7}, 2)), Error);
}

TEST(DistanceRows, AreClippedAndShared) {
  using enum DistanceRows::Kind;
  const DistanceRows both{clipped, 2}, back{behind, 2}, each{log_buckets, 3}, logs{log_buckets, 64, 8};
  EXPECT_EQ(both.rows(), 5);
  EXPECT_EQ(back.rows(), 3);
  EXPECT_EQ(each.rows(), 6);
  EXPECT_EQ(logs.rows(), 16);
  for (const auto& [d, of_both, of_back, of_each] :
       {std::tuple{-7, 0, 0, 0}, std::tuple{-1, 1, 0, 2}, std::tuple{0, 2, 0, 3}, std::tuple{1, 3, 1, 4},
        std::tuple{2, 4, 2, 5}, std::tuple{9, 4, 2, 5}}) {
    EXPECT_EQ(both.of(d), of_both);
    EXPECT_EQ(back.of(d), of_back);
    EXPECT_EQ(each.of(d), of_each);
  }
  // Distances up to the middle have their own buckets, and the farthest, 63, the last one. The signs are
  // symmetric, except that the table ends before the last positive bucket.
  for (int64_t d = -4; d <= 4; ++d) EXPECT_EQ(logs.of(d), 8 + d);
  EXPECT_EQ(logs.of(5), 8 + 5);
  EXPECT_EQ(logs.of(63), 8 + 7);
  EXPECT_EQ(logs.of(-63), 8 - 7);
  EXPECT_EQ(logs.of(-1000), 0);
  int64_t last = 0;
  for (int64_t d = -63; d <= 63; ++d) {
    EXPECT_GE(logs.of(d), last);
    last = logs.of(d);
  }
}

TEST(DistanceSinusoids, AreSinesThenCosines) {
  const Tensor r = distance_sinusoids(-2, 5, 6);
  for (int64_t row = 0; row < 5; ++row)
    for (int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(row - 2) / std::pow(10000.0, static_cast<double>(i) / 3);
      EXPECT_NEAR(r.data<float>()[row * 6 + i], std::sin(angle), 1e-7);
      EXPECT_NEAR(r.data<float>()[row * 6 + 3 + i], std::cos(angle), 1e-7);
    }
}

}  // namespace
}  // namespace qkv::relative_products_test

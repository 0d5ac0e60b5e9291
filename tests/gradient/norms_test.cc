// Norms beside residual_norm(): the squash function, the norm of columns, one factor for all columns.
// Covers: qkv/ops/batch_norm.cc, qkv/ops/squash.cc
#include <cmath>

#include "qkv/ops/batch_norm.h"
#include "qkv/ops/norm.h"
#include "qkv/ops/squash.h"
#include "tests/gradient/gradient_check.h"

namespace qkv::norms_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

TEST(SquashGradient, IsTheDifference) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{5, 7}, {1, 1}, {0, 3}, {3, 33}})
    expect_gradients([](const Tensors& in) { return Tensors{squash(in[0], 1e-3F)}; },
                     {uniform({rows, width}, 1, 0.2, 1)}, {.h = 0x1p-6, .fifth = 2000, .bf16_roundings = 6});
}

TEST(Squash, ShortensShortRowsAndLeavesLongOnesOfLengthOne) {
  const Tensor y = squash(Tensor::of({3, 2}, std::vector<float>{3, 4, 0.03F, 0.04F, 0, 0}), 0);
  const auto at = [&](int64_t i) { return double{y.data<float>()[i]}; };
  EXPECT_NEAR(std::hypot(at(0), at(1)), 25.0 / 26, 1e-6);
  EXPECT_NEAR(at(0) / at(1), 0.75, 1e-6);
  EXPECT_NEAR(std::hypot(at(2), at(3)), 0.0025 / 1.0025, 1e-8);
  EXPECT_EQ(at(4), 0);
}

TEST(BatchNormGradient, IsTheDifference) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{6, 3}, {9, 1}, {3, 19}})
    expect_gradients(
        [](const Tensors& in) {
          return Tensors{batch_norm(in[0], column_statistics(in[0].detach()), true, in[1], in[2], 0.1F)};
        },
        {uniform({rows, width}, 1), uniform({width}, 2), uniform({width}, 3)},
        {.h = 0x1p-6, .fifth = 3000, .bf16_roundings = 12, .keep_f32 = {1, 2}});
}

TEST(BatchNormGradient, PastGivenStatisticsIsTheDifference) {
  const ColumnStatistics given{uniform({3}, 4), uniform({3}, 5, 0.5, 2)};
  expect_gradients(
      [&](const Tensors& in) { return Tensors{batch_norm(in[0], given, false, in[1], in[2], 1e-5F)}; },
      {uniform({6, 3}, 1), uniform({3}, 2), uniform({3}, 3)},
      {.h = 0x1p-3, .bf16_roundings = 6, .keep_f32 = {1, 2}});
}

TEST(BatchNorm, ColumnsHaveMeanZeroAndVarianceOne) {
  const Tensor x = uniform({50, 4}, 1, -3, 9), ones = uniform({4}, 2, 1, 1), zeros = uniform({4}, 3, 0, 0);
  const Tensor y = batch_norm(x, column_statistics(x), true, ones, zeros, 0);
  for (int64_t c = 0; c < 4; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < 50; ++r) {
      sum += y.data<float>()[r * 4 + c];
      squares += std::pow(double{y.data<float>()[r * 4 + c]}, 2);
    }
    EXPECT_NEAR(sum / 50, 0, 1e-6);
    EXPECT_NEAR(squares / 50, 1, 1e-5);
  }
}

TEST(RepeatedGradient, IsTheDifference) {
  expect_gradients([](const Tensors& in) { return Tensors{repeated(in[0], 6)}; }, {uniform({1}, 1)},
                   {.h = 0x1p-3, .bf16 = false});
}

TEST(Norms, RefuseWhatDoesNotFit) {
  EXPECT_THROW(squash(uniform({3}, 1), 0), Error);
  EXPECT_THROW(column_statistics(uniform({0, 3}, 1)), Error);
  EXPECT_THROW(repeated(uniform({2}, 1), 3), Error);
  const Tensor x = uniform({2, 3}, 1), v = uniform({3}, 2), w = uniform({2}, 2);
  EXPECT_THROW(batch_norm(x, {v, v}, true, w, v, 0), Error);
}

}  // namespace
}  // namespace qkv::norms_test

// Rotary positions, ALiBi and the norms of queries and keys: definitions and gradients.
// Covers: qkv/ops/grid.cc, qkv/ops/group_norm.cc
#include "qkv/ops/rotary.h"

#include <cmath>

#include "qkv/ops/grid.h"
#include "qkv/ops/group_norm.h"
#include "qkv/ops/relative_bias.h"
#include "tests/gradient/gradient_check.h"
#include "tests/unit/expect_error.h"

namespace qkv::rotary_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

RotarySpec plain(int64_t width, RotaryLayout layout = RotaryLayout::halves) {
  RotarySpec s;
  s.width = width;
  s.layout = layout;
  return s;
}

constexpr RotaryLayout kLayouts[] = {RotaryLayout::halves, RotaryLayout::interleaved};

// With q rotated at position m and k at position n, their product is a function of m - n.
TEST(Rotary, ScoresDependOnDifferencesOfPositions) {
  for (const RotaryLayout layout : kLayouts) {
    const RotarySpec s = plain(6, layout);
    const Tensor qk = uniform({2, 8}, 3);
    const auto score = [&](int32_t m, int32_t n) {
      const Tensor x = rotary(qk, 1, 8, layout, rotation(s, Indices({m, n}), 1000));
      double sum = 0;
      for (int64_t i = 0; i < 8; ++i) sum += double{x.data<float>()[i]} * double{x.data<float>()[8 + i]};
      return sum;
    };
    for (const int32_t shift : {1, 17, 400}) {
      EXPECT_NEAR(score(5, 2), score(5 + shift, 2 + shift), 1e-5);
      EXPECT_NEAR(score(0, 7), score(shift, 7 + shift), 1e-5);
    }
    EXPECT_GT(std::abs(score(5, 2) - score(5, 3)), 1e-3);
  }
}

// A rotation keeps lengths. Position 0, columns beyond the width, and columns outside heads are unchanged.
TEST(Rotary, TurnsTheNamedColumnsOnly) {
  for (const RotaryLayout layout : kLayouts) {
    const Tensor x = uniform({3, 17}, 5), r = rotation(plain(4, layout), Indices({0, 1, 90}), 91);
    const Tensor y = rotary(x, 2, 6, layout, r);
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t c = 0; c < 17; ++c) {
        const bool in_head = c < 12 && c % 6 < 4;
        const float a = x.data<float>()[row * 17 + c], b = y.data<float>()[row * 17 + c];
        if (row == 0 || !in_head)
          EXPECT_EQ(a, b) << row << " " << c;
        else
          EXPECT_NE(a, b) << row << " " << c;
      }
    double before = 0, after = 0;
    for (int64_t i = 0; i < x.count(); ++i) {
      before += std::pow(double{x.data<float>()[i]}, 2);
      after += std::pow(double{y.data<float>()[i]}, 2);
    }
    EXPECT_NEAR(before, after, 1e-5);
  }
}

// The angles of each scaling for longer contexts, against its definition.
TEST(Rotary, Scalings) {
  const auto angle = [](const RotarySpec& s, int64_t pair, int64_t length) {
    const Tensor r = rotation(s, Indices({1}), length);
    return std::atan2(double{r.data<float>()[s.width / 2 + pair]}, double{r.data<float>()[pair]});
  };
  RotarySpec s = plain(8);
  s.original_context = 64;
  s.factor = 4;
  const auto base_angle = [&](int64_t pair) {
    return std::pow(10000.0, -2.0 * static_cast<double>(pair) / 8);
  };
  for (int64_t i = 0; i < 4; ++i) {
    s.scaling = RotaryScaling::linear;
    EXPECT_NEAR(angle(s, i, 10), base_angle(i) / 4, 1e-7);
    s.scaling = RotaryScaling::dynamic;
    EXPECT_NEAR(angle(s, i, 64), base_angle(i), 1e-7);  // not longer than the original context: unchanged
    const double base = 10000 * std::pow(4.0 * 128 / 64 - 3, 8.0 / 6);
    EXPECT_NEAR(angle(s, i, 128), std::pow(base, -2.0 * static_cast<double>(i) / 8), 1e-7);
  }
  s.scaling = RotaryScaling::llama3;
  EXPECT_NEAR(angle(s, 0, 10), base_angle(0), 1e-7);      // 10 turns in 64 positions: unchanged
  EXPECT_NEAR(angle(s, 3, 10), base_angle(3) / 4, 1e-7);  // a hundredth of a turn
  const double turns = 64 * base_angle(1) / (2 * 3.141592653589793), smooth = (turns - 1) / 3;
  ASSERT_GT(turns, 1);  // interpolated
  EXPECT_NEAR(angle(s, 1, 10), base_angle(1) * (smooth + (1 - smooth) / 4), 1e-7);
  s.scaling = RotaryScaling::yarn;
  s.low = 1;
  s.high = 32;
  EXPECT_NEAR(angle(s, 0, 10), base_angle(0), 1e-7);
  EXPECT_NEAR(angle(s, 3, 10), base_angle(3) / 4, 1e-7);
  s.magnitude = 2;
  EXPECT_NEAR(rotation(s, Indices({0}), 1).data<float>()[0], 2, 1e-6);
  s.scaling = RotaryScaling::longrope;
  s.short_factors = {1, 2, 3, 4};
  s.long_factors = {5, 6, 7, 8};
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(angle(s, i, 64), base_angle(i) / static_cast<double>(i + 1), 1e-7);
    EXPECT_NEAR(angle(s, i, 65), base_angle(i) / static_cast<double>(i + 5), 1e-7);
  }
  s.long_factors.pop_back();
  testing::expect_error([&] { rotation(s, Indices({0}), 1); }, {"longrope", "4 pairs", "got 3"});
}

// In two dimensions, each half of the pairs is rotated like a head of half the width in one dimension.
TEST(Rotary, TwoDimensionsAreTwoHeads) {
  const Indices at({13, 0, 4, 7, 9}), grid = grid_positions(at, 4);
  EXPECT_EQ(grid.shape(), (Shape{5, 2}));
  const Tensor both = rotation(plain(12), grid, 14), rows = rotation(plain(6), Indices({3, 0, 1, 1, 2}), 14),
               columns = rotation(plain(6), Indices({1, 0, 0, 3, 1}), 14);
  for (int64_t r = 0; r < 5; ++r)
    for (int64_t i = 0; i < 3; ++i)
      for (const int64_t sine : {0, 1}) {
        EXPECT_EQ(both.data<float>()[r * 12 + sine * 6 + i], rows.data<float>()[r * 6 + sine * 3 + i]);
        EXPECT_EQ(both.data<float>()[r * 12 + sine * 6 + 3 + i], columns.data<float>()[r * 6 + sine * 3 + i]);
      }
  testing::expect_error([&] { rotation(plain(6), grid, 14); }, {"two dimensions", "divisible by 4"});
}

TEST(RotaryGradient, IsTheDifference) {
  for (const RotaryLayout layout : kLayouts)
    for (const int64_t width : {2, 6}) {
      const Tensor r = rotation(plain(width, layout), Indices({0, 3, 1, 77, 12}), 78);
      expect_gradients([&](const Tensors& in) { return Tensors{rotary(in[0], 3, 7, layout, r)}; },
                       {uniform({5, 23}, 9)}, {.h = 0.25, .roundings = 4});
    }
}

TEST(Rotary, RefusesWhatDoesNotFit) {
  const Tensor x = uniform({2, 8}, 1), r = rotation(plain(4), Indices({0, 1}), 2);
  testing::expect_error([&] { rotary(x, 3, 4, RotaryLayout::halves, r); }, {"rotary", "3 heads"});
  testing::expect_error([&] { rotary(x, 2, 3, RotaryLayout::halves, r); }, {"rotary", "at most 3"});
  testing::expect_error([&] { rotary(uniform({3, 8}, 1), 1, 4, RotaryLayout::halves, r); }, {"rotary", "[3"});
  testing::expect_error([&] { rotation(plain(3), Indices({0}), 1); }, {"even"});
}

// The published slopes: a geometric series for powers of two; for six heads those of four heads, then every
// second one of eight.
TEST(Alibi, Slopes) {
  const auto slopes = [](int64_t heads, bool evens_first) {
    const Tensor bias = alibi(heads, evens_first, 3);
    std::vector<double> out;
    for (int64_t h = 0; h < heads; ++h) {
      const float* row = bias.data<float>() + h * 7;
      for (int64_t d = 0; d <= 3; ++d) {  // proportional to the distance in both directions
        EXPECT_FLOAT_EQ(row[3 + d], row[4] * static_cast<float>(d));
        EXPECT_EQ(row[3 + d], row[3 - d]);
      }
      out.push_back(std::log2(double{-row[4]}));
    }
    return out;
  };
  EXPECT_EQ(slopes(8, false), (std::vector<double>{-1, -2, -3, -4, -5, -6, -7, -8}));
  EXPECT_EQ(slopes(8, true), slopes(8, false));
  EXPECT_EQ(slopes(6, false), (std::vector<double>{-2, -4, -6, -8, -1, -3}));
  EXPECT_EQ(slopes(6, true), (std::vector<double>{-2, -4, -6, -8, -1, -3}));
  EXPECT_EQ(slopes(3, false), (std::vector<double>{-4, -8, -2}));
  EXPECT_EQ(slopes(1, false), (std::vector<double>{-8}));
}

// Falcon's slopes have 8 bits and are scaled as scores are.
TEST(Alibi, BeforeTheScores) {
  for (const auto& [heads, head, slope] : {std::tuple<int64_t, int64_t, float>{4, 1, 0x1p-4F},
                                           {32, 0, 0.83984375F}}) {  // 2^-1/4 as a bf16 number
    std::vector<float> scales(static_cast<size_t>(heads), 0.75F);
    scales[static_cast<size_t>(head)] = 0.5F;
    const Tensor bias = alibi(heads, false, 3, scales);
    EXPECT_EQ(bias.data<float>()[head * 7 + 5], -2 * slope * 0.5F);
  }
  testing::expect_error([] { alibi(3, false, 3, std::vector<float>{0.5F}); },
                        {"alibi", "1 scales of 3 heads"});
}

TEST(GroupRmsNorm, NormalisesItsGroupsOnly) {
  const Tensor x = uniform({4, 11}, 2), gamma = uniform({3}, 3, 0.5, 2);
  const Tensor y = group_rms_norm(x, {2, 2, 3}, gamma, 1e-6F);
  for (int64_t r = 0; r < 4; ++r) {
    const float *from = x.data<float>() + r * 11, *to = y.data<float>() + r * 11;
    for (const int64_t c : {0, 1, 8, 9, 10}) EXPECT_EQ(from[c], to[c]);
    for (const int64_t g : {2, 5}) {
      double square = 0;
      for (int64_t i = 0; i < 3; ++i) square += std::pow(double{from[g + i]}, 2) / 3;
      for (int64_t i = 0; i < 3; ++i)
        EXPECT_NEAR(to[g + i], from[g + i] / std::sqrt(square + 1e-6) * double{gamma.data<float>()[i]}, 1e-6);
    }
  }
}

TEST(GroupRmsNormGradient, IsTheDifference) {
  for (const bool shared : {true, false})
    for (const int64_t width : {1, 3, 17}) {
      // Away from 0, where the derivatives of a norm are unbounded.
      const Tensor x = uniform({3, 2 * width + 5}, 4, 0.5, 1.5),
                   gamma = uniform({shared ? width : 2 * width}, 5, 0.5, 1.5);
      expect_gradients(
          [&](const Tensors& in) {
            return Tensors{group_rms_norm(in[0], {1, 2, width}, in[1], 1e-3F)};
          },
          {x, gamma}, {.fifth = 400, .roundings = 12, .bf16_roundings = 4, .keep_f32 = {1}});
    }
}

TEST(GroupLayerNorm, CentresItsGroupsOnly) {
  const Tensor x = uniform({4, 11}, 2), gamma = uniform({6}, 3, 0.5, 2), beta = uniform({6}, 4);
  const Tensor y = group_layer_norm(x, {2, 2, 3}, gamma, beta, 1e-6F);
  for (int64_t r = 0; r < 4; ++r) {
    const float *from = x.data<float>() + r * 11, *to = y.data<float>() + r * 11;
    for (const int64_t c : {0, 1, 8, 9, 10}) EXPECT_EQ(from[c], to[c]);
    for (int64_t g = 0; g < 2; ++g) {
      const float* z = from + 2 + 3 * g;
      const double mean = (double{z[0]} + double{z[1]} + double{z[2]}) / 3;
      double variance = 0;
      for (int64_t i = 0; i < 3; ++i) variance += std::pow(double{z[i]} - mean, 2) / 3;
      for (int64_t i = 0; i < 3; ++i)
        EXPECT_NEAR(
            to[2 + 3 * g + i],
            (double{z[i]} - mean) / std::sqrt(variance + 1e-6) * double{gamma.data<float>()[3 * g + i]} +
                double{beta.data<float>()[3 * g + i]},
            2e-5);
    }
  }
}

TEST(GroupLayerNormGradient, IsTheDifference) {
  for (const bool shared : {true, false})
    for (const bool shifted : {true, false})
      for (const int64_t width : {3, 17}) {
        const int64_t weights = shared ? width : 2 * width;
        // Entries that differ: if all are nearly the same, the derivatives of a norm are unbounded.
        Tensor x = uniform({3, 2 * width + 5}, 4, -0.2, 0.2);
        for (int64_t i = 0; i < x.count(); ++i) x.mutable_data<float>()[i] += i % 2 == 0 ? 1.0F : -1.0F;
        std::vector<Tensor> in = {x, uniform({weights}, 5, 0.5, 1.5)};
        if (shifted) in.push_back(uniform({weights}, 6));
        expect_gradients(
            [&](const Tensors& of) {
              return Tensors{
                  group_layer_norm(of[0], {1, 2, width}, of[1], shifted ? of[2] : Tensor(), 1e-3F)};
            },
            in, {.fifth = 400, .roundings = 12, .bf16_roundings = 6, .keep_f32 = {1, 2}});
      }
}

TEST(GroupRmsNorm, RefusesWhatDoesNotFit) {
  const Tensor x = uniform({2, 8}, 1);
  testing::expect_error(
      [&] {
        group_rms_norm(x, {3, 2, 3}, uniform({3}, 1), 1e-6F);
      },
      {"group_rms_norm", "2 groups"});
  testing::expect_error([&] { group_rms_norm(x, {0, 2, 3}, uniform({4}, 1), 1e-6F); }, {"gamma"});
  testing::expect_error(
      [&] {
        group_layer_norm(x, {0, 2, 3}, uniform({3}, 1), uniform({6}, 1), 1e-6F);
      },
      {"group_layer_norm", "beta"});
}

}  // namespace
}  // namespace qkv::rotary_test

// Random features, running scales and what they make of fast weights: gradients, averages, states.
// Covers: qkv/ops/random_features.cc, qkv/nn/random_vectors.cc
#include "qkv/ops/random_features.h"

#include <cmath>

#include "qkv/nn/random_vectors.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/products.h"
#include "tests/gradient/gradient_check.h"
#include "tests/gradient/parts_check.h"
#include "tests/unit/expect_error.h"

namespace qkv::random_features_test {
namespace {

using testing::expect_error;
using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

const std::vector<int32_t> kOffsets = {0, 1, 36, 36, 40};
const int64_t kSequences = std::ssize(kOffsets) - 1, kRows = kOffsets.back();

TEST(ReshapedGradient, IsTheDifference) {
  expect_gradients(
      [](const Tensors& x) {
        return Tensors{reshaped(x[0], {6, 5})};
      },
      {uniform({5, 6}, 1)}, {.h = 0.25});
}

TEST(RandomFeaturesGradient, IsTheDifference) {
  for (const RandomMap map : {RandomMap::fourier, RandomMap::positive})
    expect_gradients(
        [&](const Tensors& x) {
          const RandomFeatures f = random_features(map, x[0], x[1], 2);
          return Tensors{f.features, f.log_scales};
        },
        {uniform({5, 6}, 1), uniform({4, 3}, 2)},
        {.h = 0x1p-6, .fifth = 400, .roundings = 64, .keep_f32 = {0, 1}});
}

// The largest exponents are constant: a feature, with all of them, times what they are (e^(w . x - |x|^2 / 2)
// less M) has the gradient of a feature alone.
TEST(RaisedFeaturesGradient, IsThatOfAFeatureWithoutItsLargest) {
  const Tensor x = uniform({5, 6}, 1), w = uniform({4, 3}, 2);
  const std::vector<int32_t> offsets = {0, 2, 2, 5};
  for (const bool by_sequence : {false, true}) {
    const auto raised = [&](const Tensor& of, float epsilon) {
      return raised_features(of, w, 2, epsilon,
                             by_sequence ? std::span<const int32_t>(offsets) : std::span<const int32_t>());
    };
    Tensor leaf = x.clone();
    const auto grad = make_leaf(leaf, Tensor::zeros(x.shape(), DType::f32));
    const Tensor y = raised(leaf, 0.25F), plain = raised(x, 0);
    float most = 0;
    for (int64_t i = 0; i < y.count(); ++i) {
      EXPECT_NEAR(y.values<float>()[i], plain.values<float>()[i] + 0.125F, 1e-6);  // m^(-1/2) is 1/2
      most = std::max(most, plain.values<float>()[i]);
    }
    EXPECT_LE(most, 0.5F);
    backward(
        std::vector<Seed>{{y, Tensor::of(y.shape(), std::vector<float>(static_cast<size_t>(y.count()), 1))}});
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t i = 0; i < 3; ++i) {
          double want = 0;
          for (int64_t j = 0; j < 4; ++j)
            want += double{plain.row<float>(t)[h * 4 + j]} *
                    (double{w.row<float>(j)[i]} - x.row<float>(t)[h * 3 + i]);
          EXPECT_NEAR(grad->grad.row<float>(t)[h * 3 + i], want, 1e-5);
        }
  }
  expect_error([&] { raised_features(x, w, 2, 0, std::vector<int32_t>{0, 4}); }, {"offsets"});
}

struct Result {
  Tensor y, state, marked;
};
Result attend(RandomMap map, const Tensor& w, const Tensors& in, const std::vector<int32_t>& offsets,
              const Tensor& first = {}, const std::vector<int32_t>& marks = {}) {
  const RandomFeatures q = random_features(map, in[0], w, 2), k = random_features(map, in[1], w, 2);
  const RunningScale s =
      running_scale(in.size() > 3 ? add(k.log_scales, in[4]) : k.log_scales, in.size() > 3 ? in[3] : Tensor(),
                    first.defined() ? columns_of(first, 0, 2) : Tensor(), offsets, marks);
  const FastWeightsResult r = fast_weights({.heads = 2,
                                            .key_heads = 2,
                                            .q = q.features,
                                            .k = scaled_heads(k.features, s.factors),
                                            .v = in[2],
                                            .decay = s.decays,
                                            .epsilon = 0.0F,
                                            .least_divisor = 1e-6F},
                                           first.defined() ? columns_of(first, 2, first.width()) : Tensor(),
                                           offsets, offsets, true, marks);
  return {r.y, join_columns(s.state, r.state), marks.empty() ? Tensor() : join_columns(s.marked, r.marked)};
}
Tensors inputs(bool gated, double size = 1) {
  Tensors in = {uniform({kRows, 6}, 1, -size, size), uniform({kRows, 6}, 2, -size, size),
                uniform({kRows, 8}, 3)};
  if (gated) in.push_back(uniform({kRows, 2}, 4, -2, 0)), in.push_back(uniform({kRows, 2}, 5, -2, 0));
  return in;
}
Tensor vectors(int64_t count, bool orthogonal = true) {
  return Tensor::of({count, 3}, random_vectors(count, 3, orthogonal, {7, 0, 1}));
}

// The largest size is held constant, and nothing depends on it.
TEST(RandomFeatureAttentionGradient, IsTheDifference) {
  for (const RandomMap map : {RandomMap::fourier, RandomMap::positive})
    for (const bool gated : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", map == RandomMap::fourier, gated));
      const Tensor w = vectors(40);
      expect_gradients([&](const Tensors& in) { return Tensors{attend(map, w, in, kOffsets).y}; },
                       inputs(gated),
                       {.h = 0x1p-6, .fifth = 4000, .roundings = 256, .keep_f32 = {0, 1, 2, 3, 4}});
    }
}

// Softmax attention of unit temperature, by definition.
std::vector<double> softmax_attention(const Tensors& in) {
  std::vector<double> out;
  for (size_t s = 0; s + 1 < kOffsets.size(); ++s)
    for (int64_t t = kOffsets[s]; t < kOffsets[s + 1]; ++t)
      for (int64_t h = 0; h < 2; ++h) {
        std::vector<double> above(4);
        double below = 0;
        for (int64_t i = kOffsets[s]; i <= t; ++i) {
          double dot = 0;
          for (int64_t c = h * 3; c < h * 3 + 3; ++c)
            dot += double{in[0].row<float>(t)[c]} * in[1].row<float>(i)[c];
          below += std::exp(dot);
          for (int64_t c = 0; c < 4; ++c)
            above[static_cast<size_t>(c)] += std::exp(dot) * in[2].row<float>(i)[h * 4 + c];
        }
        for (const double a : above) out.push_back(a / below);
      }
  return out;
}
double error_of(RandomMap map, const Tensor& w, const Tensors& in) {
  const Tensor y = attend(map, w, in, kOffsets).y;
  const std::vector<double> want = softmax_attention(in);
  double sum = 0;
  for (int64_t i = 0; i < y.count(); ++i)
    sum += std::pow(y.values<float>()[i] - want[static_cast<size_t>(i)], 2);
  return std::sqrt(sum / static_cast<double>(y.count()));
}

// The error falls with the root of the number of vectors.
TEST(RandomFeatures, ComeCloserToSoftmaxAttention) {
  for (const RandomMap map : {RandomMap::fourier, RandomMap::positive})
    for (const bool orthogonal : {false, true}) {
      const Tensors in = inputs(false);
      const double few = error_of(map, vectors(64, orthogonal), in),
                   many = error_of(map, vectors(4096, orthogonal), in);
      EXPECT_LT(many, 0.03);
      EXPECT_GT(few / many, 3) << few << " " << many;
      EXPECT_LT(few / many, 24) << few << " " << many;
    }
}

// The survey draws w of variance sigma^2; the mean of cosines of differences is what it says with 1 /
// sigma^2.
TEST(RandomFeatures, HaveTheVarianceThatMakesThemTheGaussianKernel) {
  const double sigma = std::pow(4.0, 0.25);
  const std::vector<double> x = {0.3, -0.4, 0.2, 0.1}, y = {-0.1, 0.3, 0.4, -0.2};
  const auto mean = [&](double std) {
    const std::vector<float> w = random_vectors(100'000, 4, false, {3, 0, 9});
    double sum = 0;
    for (int64_t j = 0; j < 100'000; ++j) {
      double u = 0;
      for (int64_t i = 0; i < 4; ++i)
        u += std * double{w[static_cast<size_t>(4 * j + i)]} *
             (x[static_cast<size_t>(i)] - y[static_cast<size_t>(i)]);
      sum += std::cos(u);
    }
    return sum / 100'000;
  };
  double square = 0;
  for (size_t i = 0; i < 4; ++i) square += (x[i] - y[i]) * (x[i] - y[i]);
  const double kernel = std::exp(-square / (2 * sigma * sigma));
  EXPECT_NEAR(mean(1 / sigma), kernel, 0.004);
  EXPECT_GT(std::abs(mean(sigma) - kernel), 0.1);
}

TEST(RandomVectors, AreOrthogonalInBlocks) {
  const std::vector<float> w = random_vectors(7, 3, true, {5, 6, 7});
  const auto dot = [&](int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t i = 0; i < 3; ++i)
      sum += double{w[static_cast<size_t>(3 * a + i)]} * w[static_cast<size_t>(3 * b + i)];
    return sum;
  };
  for (int64_t a = 0; a < 7; ++a)
    for (int64_t b = 0; b < a; ++b)
      if (a / 3 == b / 3) {
        EXPECT_NEAR(dot(a, b), 0, 1e-5) << a << " " << b;
      }
  EXPECT_GT(std::abs(dot(0, 3)), 1e-3);
  EXPECT_GT(std::abs(dot(0, 0) - dot(1, 1)), 1e-3);  // lengths differ
  EXPECT_NE(w, random_vectors(7, 3, true, {5, 7, 7}));
}

// Sizes of hundreds, whose exponentials floats do not hold.
TEST(RandomFeatures, DoNotOverflow) {
  for (const RandomMap map : {RandomMap::fourier, RandomMap::positive}) {
    const Tensor y = attend(map, vectors(16), inputs(true, 30), kOffsets).y;
    for (const float x : y.values<float>()) ASSERT_TRUE(std::isfinite(x));
  }
}

TEST(RandomFeatureAttention, GoesOnFromAStateWithTheSameBits) {
  const NoGrad guard;  // products whose rows do not depend on each other
  for (const RandomMap map : {RandomMap::fourier, RandomMap::positive}) {
    const Tensor w = vectors(5);
    const Tensors in = inputs(true);
    const auto rows = [&](int64_t begin, int64_t end, const Tensor& first,
                          const std::vector<int32_t>& marks) {
      Tensors part;
      for (const Tensor& x : in) part.push_back(x.slice_rows(begin, end).clone());
      return attend(map, w, part, {0, static_cast<int32_t>(end - begin)}, first, marks);
    };
    const Result whole = rows(0, 40, {}, {});
    const Tensor nothing = Tensor::zeros({1, whole.state.width()}, DType::f32);
    testing::expect_bits_of_whole(whole, nothing, rows);
  }
}

// A sum of a smaller magnitude than the least divisor keeps its sign.
TEST(FastWeights, DivideByNoLessThanTheyMay) {
  const std::vector<int32_t> offsets = {0, 1};
  for (const float sign : {1.0F, -1.0F}) {
    const Tensor q = Tensor::of({1, 1}, std::vector<float>{sign * 0.25F}),
                 k = Tensor::of({1, 1}, std::vector<float>{1}), v = Tensor::of({1, 1}, std::vector<float>{3});
    const auto y = [&](float least) {
      const FastWeightsResult r = fast_weights(
          {.q = q, .k = k, .v = v, .epsilon = 0.0F, .least_divisor = least}, {}, offsets, offsets, true);
      return r.y.item();
    };
    EXPECT_EQ(y(0.125F), 3);
    EXPECT_EQ(y(0.5F), 1.5F);  // sign cancels: 0.75 sign / (0.5 sign)
  }
}

TEST(RandomFeatures, RefuseWhatDoesNotFit) {
  const Tensor x = uniform({4, 6}, 1), w = uniform({5, 3}, 2);
  expect_error([&] { random_features(RandomMap::positive, x, w, 4); }, {"4 heads"});
  expect_error([&] { random_features(RandomMap::positive, x, w, 3); }, {"w f32"});
  const std::vector<int32_t> offsets = {0, 4}, wrong = {0, 3}, marks = {1, 2};
  expect_error([&] { running_scale(x, {}, {}, wrong); }, {"offsets"});
  expect_error([&] { running_scale(x, w, {}, offsets); }, {"keeps"});
  expect_error([&] { running_scale(x, {}, w, offsets); }, {"first"});
  expect_error([&] { running_scale(x, {}, {}, offsets, marks); }, {"marks"});
  expect_error([&] { reshaped(x, {5, 5}); }, {"reshape"});
}

}  // namespace
}  // namespace qkv::random_features_test

// Frames of a spectrogram through two convolutions, against loops in f64, and rows of features among tokens.
#include "qkv/models/feature_embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/nn/parameter.h"
#include "tests/unit/expect_error.h"

namespace qkv::feature_embedding_test {
namespace {

using Rows = std::vector<std::vector<double>>;

// Three frames around every `stride`-th of x (absent ones are 0) times the kernel [out, channels, 3]; then
// GELU.
Rows convolution(const Rows& x, Parameters& parameters, const std::string& name, int stride) {
  const Tensor weight = parameters.find(name + ".weight")->value,
               bias = parameters.find(name + ".bias")->value;
  const auto w = weight.values<float>(), b = bias.values<float>();
  const auto width = static_cast<size_t>(weight.dim(0)), channels = x[0].size();
  Rows out;
  for (int at = 0; at < std::ssize(x); at += stride) {
    std::vector<double>& row = out.emplace_back();
    for (size_t o = 0; o < width; ++o) {
      double sum = double{b[o]};
      for (int k = 0; k < 3; ++k)
        for (size_t c = 0; c < channels; ++c)
          if (const int frame = at + k - 1; frame >= 0 && frame < std::ssize(x))
            sum +=
                double{w[(o * channels + c) * 3 + static_cast<size_t>(k)]} * x[static_cast<size_t>(frame)][c];
      row.push_back(0.5 * sum * (1 + std::erf(sum / std::sqrt(2.0))));
    }
  }
  return out;
}

TEST(FeatureEmbedding, FramesGoThroughTwoConvolutions) {
  const FeatureSpec spec{.kind = FeatureSpec::Kind::frames, .channels = 3};
  Parameters parameters;
  const FeatureEmbedding embedding(parameters, "embedding", spec, 5, 0.5F);
  parameters.draw(1, DType::f32);
  const std::vector<int32_t> offsets = {0, 2, 5};  // rows of the result: sequences of 4 and 6 frames
  std::vector<float> frames;
  for (int i = 0; i < 10 * 3; ++i) frames.push_back(std::sin(static_cast<float>(i * i)));
  const NoGrad guard;
  const Tensor got = embedding.forward(Tensor::of({10, 3}, frames), offsets);
  ASSERT_EQ(got.shape(), (Shape{5, 5}));
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    Rows x;
    for (int row = 2 * offsets[s]; row < 2 * offsets[s + 1]; ++row)
      x.emplace_back(frames.begin() + 3 * row, frames.begin() + 3 * row + 3);
    const Rows want = convolution(convolution(x, parameters, "embedding.convolution.0", 1), parameters,
                                  "embedding.convolution.1", 2);
    ASSERT_EQ(std::ssize(want), offsets[s + 1] - offsets[s]);
    for (size_t r = 0; r < want.size(); ++r)
      for (size_t c = 0; c < 5; ++c)
        EXPECT_NEAR(got.values<float>()[(static_cast<size_t>(offsets[s]) + r) * 5 + c], want[r][c], 1e-5);
  }
}

TEST(FeatureEmbedding, RefusesRowsOfAnotherWidth) {
  Parameters parameters;
  const FeatureEmbedding embedding(parameters, "embedding",
                                   {.kind = FeatureSpec::Kind::frames, .channels = 3}, 5, 0.5F);
  testing::expect_error(
      [&] {
        embedding.forward(Tensor::of({1, 2}, std::vector<float>{1, 2}), {0, 1});
      },
      {"features [rows, 3]", "[1, 2]"});
}

TEST(PlaceFeatures, StandWhereTheIdsSay) {
  const Tensor table = Tensor::of({2, 2}, std::vector<float>{1, 2, 3, 4}),
               rows = Tensor::of({2, 2}, std::vector<float>{5, 6, 7, 8});
  const auto placed = [&](const std::vector<int32_t>& ids) {
    const Tensor out = place_features(ids, table, rows);
    const auto values = out.values<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(placed({kFeature, 1, 0, kFeature}), (std::vector<float>{5, 6, 3, 4, 1, 2, 7, 8}));
  EXPECT_EQ(placed({kFeature, kFeature}), (std::vector<float>{5, 6, 7, 8}));
  testing::expect_error([&] { placed({kFeature, 1}); }, {"2 rows", "1 places"});
}

}  // namespace
}  // namespace qkv::feature_embedding_test

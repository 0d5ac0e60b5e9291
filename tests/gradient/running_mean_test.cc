// The mean of each row and those before it: its values, its gradient, and going on from a sum.
#include "qkv/ops/running_mean.h"

#include "tests/gradient/gradient_check.h"

namespace qkv::running_mean_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

const std::vector<int32_t> kOffsets = {0, 1, 5, 5, 7};

TEST(RunningMeanGradient, IsTheDifference) {
  for (const int64_t width : {1, 3, 65, 130})
    expect_gradients([&](const Tensors& in) { return Tensors{running_mean(in[0], kOffsets).mean}; },
                     {uniform({7, width}, 1)}, {.h = 0.5, .roundings = 8, .bf16_roundings = 2});
}

TEST(RunningMean, IsOfTheRowsBefore) {
  const Tensor x = uniform({7, 70}, 1), y = running_mean(x, kOffsets).mean;
  for (size_t s = 0; s + 1 < kOffsets.size(); ++s)
    for (int64_t r = kOffsets[s]; r < kOffsets[s + 1]; ++r)
      for (int64_t c = 0; c < 70; ++c) {
        double sum = 0;
        for (int64_t k = kOffsets[s]; k <= r; ++k) sum += x.row<float>(k)[c];
        EXPECT_NEAR(y.row<float>(r)[c], sum / static_cast<double>(r - kOffsets[s] + 1), 1e-6);
      }
}

TEST(RunningMean, GoesOnFromASum) {
  const Tensor x = uniform({6, 5}, 1), whole = running_mean(x, std::vector<int32_t>{0, 6}).mean;
  Tensor sum = Tensor::zeros({1, 5}, DType::f32);
  int64_t count = 0;
  for (const int64_t end : {2, 3, 6}) {
    const auto rows = static_cast<int32_t>(end - count);
    const RunningMean r = running_mean(x.slice_rows(count, end), std::vector<int32_t>{0, rows}, sum,
                                       std::vector<int64_t>{count});
    for (int32_t i = 0; i < rows; ++i)
      EXPECT_TRUE(std::ranges::equal(r.mean.row<float>(i), whole.row<float>(count + i)));
    sum = r.sums.slice_rows(rows - 1, rows).clone();
    count = end;
  }
}

TEST(RunningMean, RefusesWhatDoesNotFit) {
  const Tensor x = uniform({3, 2}, 1), sums = uniform({1, 2}, 2);
  const std::vector<int32_t> all = {0, 3};
  const std::vector<int64_t> one = {1};
  EXPECT_THROW(running_mean(x, std::vector<int32_t>{0, 2}), Error);
  EXPECT_THROW(running_mean(x, all, uniform({2, 2}, 2), one), Error);
  EXPECT_THROW(running_mean(x, all, sums), Error);
  EXPECT_THROW(running_mean(x, all, {}, one), Error);
}

}  // namespace
}  // namespace qkv::running_mean_test

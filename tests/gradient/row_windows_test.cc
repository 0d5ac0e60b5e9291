// Neighbouring rows side by side, as a convolution over a sequence takes them.
#include "qkv/ops/row_windows.h"

#include "tests/gradient/gradient_check.h"

namespace qkv::row_windows_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

TEST(RowWindows, AreNeighboursWithinASequence) {
  const Tensor x = Tensor::of({5, 2}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  const Tensor y = row_windows(x, {0, 3, 5}, 3, 2);
  ASSERT_EQ(y.shape(), (Shape{3, 6}));
  const std::vector<float> want = {0, 1, 3, 0, 2, 4, 3, 5, 0, 4, 6, 0, 0, 7, 9, 0, 8, 10};
  EXPECT_TRUE(std::equal(want.begin(), want.end(), y.data<float>()));
}

// Against the definition of a convolution: y[t] = sum over i and c of kernel[c, i] x[t stride + i - 1, c].
TEST(RowWindows, TimesAKernelIsAConvolution) {
  const Tensor x = uniform({7, 3}, 1), kernel = uniform({1, 9}, 2);
  for (const int64_t stride : {1, 2}) {
    const Tensor windows = row_windows(x, {0, 7}, 3, stride);
    ASSERT_EQ(windows.dim(0), (7 + stride - 1) / stride);
    for (int64_t t = 0; t < windows.dim(0); ++t) {
      double got = 0, want = 0;
      for (int64_t j = 0; j < 9; ++j)
        got += double{windows.data<float>()[t * 9 + j]} * double{kernel.data<float>()[j]};
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t i = 0; i < 3; ++i) {
          const int64_t from = t * stride + i - 1;
          if (from >= 0 && from < 7)
            want += double{kernel.data<float>()[c * 3 + i]} * double{x.data<float>()[from * 3 + c]};
        }
      EXPECT_NEAR(got, want, 1e-6);
    }
  }
}

TEST(RowWindowsGradient, IsTheDifference) {
  for (const int64_t stride : {1, 2, 3})
    expect_gradients(
        [&](const Tensors& in) {
          return Tensors{row_windows(in[0], {0, 4, 4, 5}, 3, stride)};
        },
        {uniform({5, 3}, 1)}, {.h = 1, .roundings = 4});
}

TEST(RowWindows, RefusesWhatDoesNotFit) {
  EXPECT_THROW(row_windows(uniform({4}, 1), {0, 4}, 3, 1), Error);
  EXPECT_THROW(row_windows(uniform({4, 2}, 1), {0, 3}, 3, 1), Error);
  EXPECT_THROW(row_windows(uniform({4, 2}, 1), {0, 4}, 2, 1), Error);
  EXPECT_THROW(row_windows(uniform({4, 2}, 1), {0, 4}, 3, 0), Error);
}

}  // namespace
}  // namespace qkv::row_windows_test

// Gradients of the losses of labels and of numbers, and their values.
#include "qkv/ops/score_losses.h"

#include "tests/gradient/gradient_check.h"
#include "tests/unit/expect_error.h"

namespace qkv::score_losses_test {
namespace {

using testing::expect_error;
using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

// The fifth derivative of log(1 + e^z) is below 0.25.
TEST(BinaryCrossEntropyGradient, IsTheDifference) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 1}, Shape{1, 5}, Shape{4, 7}})
    expect_gradients(
        [&](const Tensors& in) {
          return Tensors{binary_cross_entropy(in[0], uniform(shape, 2, 0, 1), 0.5F).loss};
        },
        {uniform(shape, 1, -4, 4)}, {.fifth = 2, .root = true, .bf16 = false});
}

TEST(SquaredErrorGradient, IsTheDifference) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 1}, Shape{1, 5}, Shape{4, 7}})
    expect_gradients(
        [&](const Tensors& in) { return Tensors{squared_error(in[0], uniform(shape, 2, -3, 3), 0.5F).loss}; },
        {uniform(shape, 1, -4, 4)}, {.root = true, .bf16 = false});
}

TEST(ScoreLosses, AreMeansOverTheScoresOfASequence) {
  const Tensor z = Tensor::of({2, 2}, std::vector<float>{0, 2, -1, 100});
  const ScoreLoss b = binary_cross_entropy(z, Tensor::of({2, 2}, std::vector<float>{1, 0, 0.5F, 1}), 3);
  const double first = (std::log(2.0) + std::log(1 + std::exp(2.0))) / 2,
               second = (std::log(1 + std::exp(-1.0)) + 0.5) / 2;
  EXPECT_NEAR(b.total, first + second, 1e-12);
  EXPECT_EQ(b.count, 2);
  EXPECT_NEAR(b.loss.item(), 3 * b.total, 1e-5);
  const ScoreLoss s = squared_error(z, Tensor::of({2, 2}, std::vector<float>{1, 0, -1, 98}), 1);
  EXPECT_NEAR(s.total, (1 + 4) / 2.0 + (0 + 4) / 2.0, 1e-12);
}

TEST(ScoreLosses, RefuseWhatDoesNotFit) {
  const Tensor z = uniform({2, 3}, 1);
  expect_error([&] { squared_error(z, uniform({3, 2}, 1), 1); }, {"squared_error", "targets", "[2, 3]"});
  expect_error([&] { squared_error({}, z, 1); }, {"squared_error", "scores"});
  expect_error([&] { squared_error(z, {}, 1); }, {"squared_error", "targets", "nothing"});
  expect_error(
      [&] {
        binary_cross_entropy(convert(z, DType::bf16), uniform({2, 3}, 1, 0, 1), 1);
      },
      {"binary_cross_entropy", "scores", "bf16"});
  expect_error(
      [&] {
        binary_cross_entropy(z, uniform({2, 3}, 1, 2, 3), 1);
      },
      {"binary_cross_entropy", "targets", "from 0 to 1"});
}

}  // namespace
}  // namespace qkv::score_losses_test

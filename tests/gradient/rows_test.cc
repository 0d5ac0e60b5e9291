// Gradients of what leads from a flat batch's rows to a head, and the loss over a sequence's tokens.
#include "qkv/ops/rows.h"

#include "qkv/kernels/kernels.h"
#include "tests/gradient/gradient_check.h"

namespace qkv::rows_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

TEST(SelectRowsGradient, IsTheDifference) {
  const Indices rows({2, 0, 2, 4});  // a row twice, some never
  for (const int64_t width : {1, 3, 17, 65})
    expect_gradients([&](const Tensors& in) { return Tensors{select_rows(in[0], rows)}; },
                     {uniform({5, width}, 1)}, {.h = 0.5, .roundings = 4});
}

TEST(SelectRows, RefusesARowThatIsNotThere) {
  EXPECT_THROW(select_rows(uniform({2, 3}, 1), Indices({2})), Error);
  EXPECT_THROW(select_rows(uniform({2, 3}, 1), Indices({-1})), Error);
}

TEST(ReplaceRowsGradient, IsTheDifference) {
  for (const std::vector<int32_t>& which : {std::vector<int32_t>{1, 4, 0}, std::vector<int32_t>{}}) {
    const Indices rows = which;
    expect_gradients([&](const Tensors& in) { return Tensors{replace_rows(in[0], rows, in[1])}; },
                     {uniform({5, 3}, 1), uniform({std::ssize(which), 3}, 2)}, {.h = 0.25});
  }
  EXPECT_THROW(replace_rows(uniform({2, 3}, 1), Indices({2}), uniform({1, 3}, 2)), Error);
  EXPECT_THROW(replace_rows(uniform({2, 3}, 1), Indices({1, 1}), uniform({2, 3}, 2)), Error);
  EXPECT_THROW(replace_rows(uniform({2, 3}, 1), Indices({1}), uniform({1, 2}, 2)), Error);
}

TEST(MeanOfSequencesGradient, IsTheDifference) {
  const std::vector<int32_t> offsets = {0, 1, 5, 7};
  for (const int64_t width : {1, 3, 17})
    expect_gradients([&](const Tensors& in) { return Tensors{mean_of_sequences(in[0], offsets)}; },
                     {uniform({7, width}, 1)}, {.h = 0.5, .roundings = 6, .bf16_roundings = 2});
}

TEST(MeanOfSequences, DoesNotSeeItsNeighbours) {
  const Tensor x = uniform({7, 5}, 1);
  const Tensor all = mean_of_sequences(x, std::vector<int32_t>{0, 3, 7}),
               alone = mean_of_sequences(x.slice_rows(3, 7), std::vector<int32_t>{0, 4});
  for (int64_t c = 0; c < 5; ++c) EXPECT_EQ(all.data<float>()[5 + c], alone.data<float>()[c]);
  EXPECT_THROW(mean_of_sequences(x, std::vector<int32_t>{0, 0, 7}), Error);
}

// Rows of length between 0.75 and 3: the fifth derivative of x / |x| stays below 200 there.
TEST(UnitRowsGradient, IsTheDifference) {
  for (const int64_t width : {2, 3, 9})
    expect_gradients([](const Tensors& in) { return Tensors{unit_rows(in[0])}; },
                     {uniform({4, width}, 1, 0.6, 1)}, {.h = 1.0 / 64, .fifth = 400, .roundings = 8});
}

// -log softmax has a fifth derivative below 2 (that of a logistic function's integral).
TEST(FindRowsCrossEntropyGradient, IsTheDifference) {
  const std::vector<int32_t> offsets = {0, 4, 5, 9};
  const Indices targets({1, 3, kIgnored, kIgnored, 0, 0}, 2);
  expect_gradients(
      [&](const Tensors& in) { return Tensors{find_rows_cross_entropy(in[0], offsets, targets, 0.5F).loss}; },
      {uniform({9, 2}, 1, -2, 2)}, {.fifth = 8, .roundings = 16, .keep_f32 = {0}});
  const Indices one({3, kIgnored, 0});
  expect_gradients(
      [&](const Tensors& in) { return Tensors{find_rows_cross_entropy(in[0], offsets, one, 0.5F).loss}; },
      {uniform({9, 1}, 2, -2, 2)}, {.fifth = 8, .roundings = 16, .keep_f32 = {0}});
}

TEST(FindRowsCrossEntropy, IsTheMeanOfAllColumns) {
  // Three tokens; start scores 0 0 0, end scores 0 log2 0: P(start) = 1/3, P(end = 1) = 2/4.
  const float l2 = std::log(2.0F);
  const Tensor z = Tensor::of({3, 2}, std::vector<float>{0, 0, 0, l2, 0, 0});
  const FoundRowsLoss r = find_rows_cross_entropy(z, std::vector<int32_t>{0, 3}, Indices({2, 1}, 2), 1);
  EXPECT_NEAR(r.total, (std::log(3.0) + std::log(2.0)) / 2, 1e-6);
  EXPECT_EQ(r.count, 1);
  EXPECT_THROW(find_rows_cross_entropy(z, std::vector<int32_t>{0, 3}, Indices({2, 3}, 2), 1), Error);
  EXPECT_THROW(find_rows_cross_entropy(z, std::vector<int32_t>{0, 2}, Indices({1, 1}, 2), 1), Error);
  EXPECT_THROW(find_rows_cross_entropy(z, std::vector<int32_t>{0, 3}, Indices({1}), 1), Error);
  // One column: P = 2/4 of three rows, and 1/1 of a group of its own.
  const Tensor one = Tensor::of({4, 1}, std::vector<float>{0, l2, 0, 7});
  const FoundRowsLoss choice =
      find_rows_cross_entropy(one, std::vector<int32_t>{0, 3, 4}, Indices({1, 0}), 1);
  EXPECT_NEAR(choice.total, std::log(2.0), 1e-6);
  EXPECT_EQ(choice.count, 2);
}

// Softmaxes over inner products up to 2 / 0.5: a fifth derivative by an element of size 1 / 0.5^5 at most.
TEST(ContrastiveGradient, IsTheDifference) {
  expect_gradients(
      [](const Tensors& in) { return Tensors{contrastive_cross_entropy(in[0], in[1], 0.5F, 0.25F).loss}; },
      {uniform({5, 3}, 1), uniform({5, 3}, 2)},
      {.h = 1.0 / 32, .fifth = 2000, .roundings = 16, .keep_f32 = {0, 1}});
}

TEST(Contrastive, IsTheMeanOfBothWays) {
  // z = [[2, 0], [0, 2]] / 1: every softmax gives e^2 / (e^2 + 1).
  const Tensor u = Tensor::of({2, 2}, std::vector<float>{1, 0, 0, 1}),
               v = Tensor::of({2, 2}, std::vector<float>{2, 0, 0, 2});
  const ContrastiveLoss r = contrastive_cross_entropy(u, v, 1, 1);
  EXPECT_NEAR(r.total, 2 * std::log(1 + std::exp(-2.0)), 1e-6);
  EXPECT_EQ(r.found, 2);
  const Tensor crossed = Tensor::of({2, 2}, std::vector<float>{0, 2, 2, 0});
  EXPECT_EQ(contrastive_cross_entropy(u, crossed, 1, 1).found, 0);
  EXPECT_NEAR(contrastive_cross_entropy(u, crossed, 1, 1).total, 2 * std::log(1 + std::exp(2.0)), 1e-6);
  EXPECT_THROW(contrastive_cross_entropy(u, v, 0, 1), Error);
}

}  // namespace
}  // namespace qkv::rows_test

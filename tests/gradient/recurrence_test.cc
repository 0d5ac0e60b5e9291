// Gradients of recurrences, of the attentions of recurrent decoders, and of tensors cut apart and joined.
// Covers: qkv/ops/parts.cc, qkv/ops/source_attention.cc
#include "qkv/ops/recurrence.h"

#include "qkv/ops/parts.h"
#include "qkv/ops/source_attention.h"
#include "tests/gradient/gradient_check.h"

namespace qkv::recurrence_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;
using Offsets = std::vector<int32_t>;

class RecurrenceGradient : public ::testing::TestWithParam<std::tuple<Cell, bool>> {};

// Logistic functions and tanh of sums below 4, through three steps: the fifth derivative by one number stays
// below that of the two or three factors it goes through.
TEST_P(RecurrenceGradient, IsTheDifference) {
  const auto [cell, backwards] = GetParam();
  const Offsets offsets = {0, 2, 2, 5, 6};  // one sequence is empty
  for (const int64_t n : {1, 3, 17}) {
    const double most = 1 / std::sqrt(static_cast<double>(n));
    expect_gradients(
        [&, cell = cell, backwards = backwards](const Tensors& in) {
          const RecurrenceResult r = recurrence(cell, in[0], in[1], in[2], offsets, backwards);
          return Tensors{r.hidden, r.states};
        },
        {uniform({6, gates_of(cell) * n}, 1), uniform({gates_of(cell) * n, n}, 2, -most, most),
         uniform({4, state_parts(cell) * n}, 3)},
        {.h = 1.0 / 16, .fifth = 60, .roundings = 32, .bf16_roundings = 6, .keep_f32 = {2}});
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrenceGradient,
                         ::testing::Combine(::testing::Values(Cell::lstm, Cell::gru), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == Cell::lstm ? "lstm" : "gru") +
                                  (std::get<1>(info.param) ? "_backwards" : "");
                         });

TEST(Recurrence, RefusesWhatDoesNotFit) {
  const Offsets two = {0, 1, 3};
  const Tensor x = uniform({3, 8}, 1), u = uniform({8, 2}, 2), first = uniform({2, 4}, 3);
  EXPECT_NO_THROW(recurrence(Cell::lstm, x, u, first, two));
  EXPECT_THROW(recurrence(Cell::none, x, u, first, two), Error);
  EXPECT_THROW(recurrence(Cell::gru, x, u, {}, two), Error);
  EXPECT_THROW(recurrence(Cell::lstm, x, u, uniform({2, 2}, 3), two), Error);
  EXPECT_THROW(recurrence(Cell::lstm, x, u, convert(first, DType::bf16), two), Error);
  EXPECT_THROW(recurrence(Cell::lstm, x, convert(u, DType::bf16), first, two), Error);
  EXPECT_THROW(recurrence(Cell::lstm, uniform({3, 6}, 1), u, first, two), Error);
  EXPECT_THROW(recurrence(Cell::lstm, x, u, first, Offsets{0, 3, 2}), Error);
}

// Keys of three sequences in another order than their queries; the second has no query.
class SourceAttentionGradient : public ::testing::Test {
 protected:
  SourceAttentionGradient() {
    layout_.lengths = {4, 1, 3};
    layout_.block_offsets = {0, 1, 2};
    layout_.blocks = {4, 3, 0};
  }
  const Offsets offsets_ = {0, 2, 2, 5};
  KeyLayout layout_;
};

// A softmax over at most four sums of tanh.
TEST_F(SourceAttentionGradient, OfAdditiveScores) {
  for (const int64_t width : {1, 3, 17})
    expect_gradients(
        [&](const Tensors& in) {
          return Tensors{additive_attention(in[0], in[1], in[2], in[3], offsets_, layout_)};
        },
        {uniform({5, width}, 1), uniform({8, width}, 2), uniform({8, 2}, 3), uniform({width}, 4)},
        {.h = 1.0 / 16, .fifth = 100, .roundings = 32, .bf16_roundings = 6, .keep_f32 = {3}});
}

// The places stay away from where a key enters the window.
TEST_F(SourceAttentionGradient, OfLocalAttention) {
  const Tensor u = Tensor::of({5, 1}, std::vector<float>{0.5F, -0.5F, 0, 0.1F, -0.2F});
  for (const int64_t width : {1, 3, 17})
    expect_gradients(
        [&](const Tensors& in) {
          return Tensors{local_attention(in[0], in[1], in[2], in[3], 1, offsets_, layout_)};
        },
        {uniform({5, width}, 1), uniform({8, width}, 2), uniform({8, 2}, 3), u},
        {.h = 1.0 / 64, .fifth = 2e4, .roundings = 32, .bf16_roundings = 8, .keep_f32 = {3}});
}

TEST_F(SourceAttentionGradient, RefusesWhatDoesNotFit) {
  const Tensor q = uniform({5, 2}, 1), k = uniform({8, 2}, 2), u = uniform({5, 1}, 3), v = uniform({2}, 4);
  EXPECT_NO_THROW(additive_attention(q, k, k, v, offsets_, layout_));
  EXPECT_THROW(additive_attention(q, k, k, uniform({3}, 4), offsets_, layout_), Error);
  EXPECT_THROW(additive_attention(q, uniform({8, 3}, 2), k, v, offsets_, layout_), Error);
  EXPECT_THROW(additive_attention(q, k, uniform({7, 2}, 2), v, offsets_, layout_), Error);
  EXPECT_THROW(additive_attention(q, k, k, v, Offsets{0, 5}, layout_), Error);
  EXPECT_THROW(local_attention(q, k, k, v, 1, offsets_, layout_), Error);
  EXPECT_THROW(local_attention(q, k, k, u, 0, offsets_, layout_), Error);
  KeyLayout outside = layout_;
  outside.blocks[0] = 5;
  EXPECT_THROW(local_attention(q, k, k, u, 1, offsets_, outside), Error);
}

TEST(PartsGradient, IsTheDifference) {
  const testing::Check linear = {.h = 0.5, .roundings = 4, .bf16_roundings = 2};
  expect_gradients(
      [](const Tensors& in) {
        return Tensors{columns_of(in[0], 1, 3), columns_of(in[0], 2, 5)};
      },
      {uniform({4, 5}, 1)}, linear);
  expect_gradients([](const Tensors& in) { return Tensors{join_columns(in[0], in[1])}; },
                   {uniform({4, 3}, 1), uniform({4, 2}, 2)}, linear);
  const std::vector<int64_t> counts = {2, 0, 3};
  expect_gradients(
      [&](const Tensors& in) {
        const Tensors parts = split_rows(in[0], counts);
        return Tensors{join_rows({parts[2], parts[0], parts[2]})};
      },
      {uniform({5, 3}, 1)}, linear);
}

TEST(Parts, RefuseWhatDoesNotFit) {
  const Tensor x = uniform({4, 5}, 1);
  EXPECT_THROW(columns_of(x, 3, 6), Error);
  EXPECT_THROW(columns_of(x, 3, 2), Error);
  EXPECT_THROW(join_columns(x, uniform({3, 5}, 1)), Error);
  EXPECT_THROW(join_columns(x, convert(x, DType::bf16)), Error);
  EXPECT_THROW(split_rows(x, std::vector<int64_t>{2, 1}), Error);
  EXPECT_THROW(split_rows(x, std::vector<int64_t>{5, -1}), Error);
  EXPECT_THROW(join_rows({}), Error);
  EXPECT_THROW(join_rows({x, uniform({4, 4}, 1)}), Error);
}

}  // namespace
}  // namespace qkv::recurrence_test

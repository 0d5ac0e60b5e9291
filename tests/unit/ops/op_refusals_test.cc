// Ops reject shapes and types that do not fit, and name them together with the op.
#include "qkv/nn/parameter.h"
#include "qkv/ops/attention_unfused.h"
#include "qkv/ops/cross_entropy.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/embedding.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/low_rank.h"
#include "qkv/ops/norm.h"
#include "tests/unit/expect_error.h"

namespace qkv::op_refusals_test {
namespace {

using testing::expect_error;

Tensor f32(Shape shape) {
  return Tensor::zeros(shape, DType::f32);
}
Tensor bf16(Shape shape) {
  return Tensor::zeros(shape, DType::bf16);
}
Tensor i32(const std::vector<int32_t>& values) {
  return Tensor::of({static_cast<int64_t>(values.size())}, values);
}

TEST(OpRefusals, Linear) {
  expect_error([] { linear(f32({2, 3}), f32({4, 5}), {}); }, {"linear", "weight", "[4, 5]", "[2, 3]"});
  expect_error([] { linear(f32({2, 3}), f32({3}), {}); }, {"linear", "[3]"});
  expect_error([] { linear(f32({3}), f32({4, 3}), {}); }, {"linear", "[3]"});
  expect_error([] { linear(f32({2, 3}), {}, {}); }, {"linear", "weight"});
  expect_error([] { linear(bf16({2, 3}), f32({4, 3}), {}); }, {"linear", "weight", "f32", "bf16"});
  expect_error([] { linear(f32({2, 3}), f32({4, 3}), f32({3})); }, {"linear", "bias", "[4]", "[3]"});
  expect_error([] { linear(f32({2, 3}), f32({4, 3}), bf16({4})); }, {"linear", "bias", "f32", "bf16"});
  expect_error([] { linear(f32({2, 3}), f32({4, 3}), {}, DType::bf16); }, {"linear", "bf16"});
  EXPECT_EQ(linear(bf16({2, 3}), bf16({4, 3}), {}, DType::f32).dtype(), DType::f32);
}

TEST(OpRefusals, LowRank) {
  const auto add = [](const Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b, int64_t begin) {
    add_low_rank(y, x, a, b, 1, begin);
  };
  expect_error(
      [&] {
        add(f32({2, 6}), f32({2, 3}), f32({1, 4}), f32({5, 1}), 0);
      },
      {"add_low_rank", "a", "[1, 4]", "[2, 3]"});
  expect_error(
      [&] {
        add(f32({2, 6}), f32({2, 3}), f32({1, 3}), f32({5, 2}), 0);
      },
      {"add_low_rank", "b", "[5, 2]", "[1, 3]"});
  expect_error(
      [&] {
        add(f32({3, 6}), f32({2, 3}), f32({1, 3}), f32({5, 1}), 0);
      },
      {"add_low_rank", "y", "[3, 6]", "[2, 3]"});
  expect_error(
      [&] {
        add(f32({2, 6}), f32({2, 3}), f32({1, 3}), f32({5, 1}), 2);
      },
      {"add_low_rank", "columns [2, 7) of 6"});
  expect_error(
      [&] {
        add(f32({2, 6}), f32({2, 3}), f32({1, 3}), bf16({5, 1}), 0);
      },
      {"add_low_rank", "b", "f32", "bf16"});
  expect_error([&] { add({}, f32({2, 3}), f32({1, 3}), f32({5, 1}), 0); }, {"add_low_rank", "y"});
}

TEST(OpRefusals, Embedding) {
  expect_error([] { embedding({}, f32({4, 3}), "token id"); }, {"embedding", "token id", "nothing"});
  expect_error([] { embedding(Indices({1, 2}, 2), f32({4, 3}), "token id"); }, {"embedding", "[1, 2]"});
  expect_error([] { embedding(Indices({0}), f32({4}), "token id"); }, {"embedding", "[4]"});
  expect_error(
      [] {
        embedding(Indices({0, 4}), f32({4, 3}), "token id");
      },
      {"token id 4", "row 1", "4 rows"});
  expect_error([] { embedding(Indices({-1}), f32({4, 3}), "position"); }, {"position -1", "row 0"});
}

TEST(OpRefusals, ResidualNorm) {
  expect_error(
      [] {
        residual_norm(f32({2, 3}), {}, {}, f32({2}), f32({3}), 1);
      },
      {"residual_norm", "gamma", "[3]", "[2]"});
  expect_error(
      [] {
        residual_norm(f32({2, 3}), {}, {}, f32({3}), f32({2}), 1);
      },
      {"residual_norm", "beta", "[3]", "[2]"});
  expect_error(
      [] {
        residual_norm(f32({2, 3}), {}, {}, bf16({3}), f32({3}), 1);
      },
      {"residual_norm", "gamma", "f32"});
  expect_error(
      [] {
        residual_norm(f32({2, 3}), f32({3, 2}), {}, f32({3}), f32({3}), 1);
      },
      {"residual_norm", "branch"});
  expect_error(
      [] {
        residual_norm(f32({2, 3}), bf16({2, 3}), {}, f32({3}), f32({3}), 1);
      },
      {"residual_norm", "branch"});
  expect_error(
      [] {
        residual_norm(i32({1, 2, 3}), {}, {}, f32({3}), f32({3}), 1);
      },
      {"residual_norm", "i32"});
}

TEST(OpRefusals, Elementwise) {
  expect_error([] { add(f32({2, 3}), f32({3, 2})); }, {"add", "[2, 3]", "[3, 2]"});
  expect_error([] { add(f32({2}), bf16({2})); }, {"add", "f32", "bf16"});
  expect_error([] { add(f32({2}), {}); }, {"add", "nothing"});
  expect_error([] { add(i32({2}), i32({2})); }, {"add", "i32"});
  expect_error([] { activation(Activation::relu, i32({1})); }, {"activation", "i32"});
  expect_error([] { convert(f32({2}), DType::i32); }, {"convert", "f32", "i32"});
  expect_error([] { convert(i32({2}), DType::f32); }, {"convert", "i32", "f32"});
  for (const float p : {-0.1F, 1.0F, std::numeric_limits<float>::quiet_NaN()})
    expect_error([&] { dropout(f32({2, 2}), {p, {}, 0}); }, {"dropout", "[0, 1)"});
  expect_error([] { dropout(i32({1, 2}), {0.5F, {}, 0}); }, {"dropout", "i32"});
}

TEST(OpRefusals, Attention) {
  const std::vector<int32_t> offsets = {0, 4};
  const auto keys = KeyLayout::contiguous(offsets);
  const auto run = [&](const Heads& q, const Heads& k, const Heads& v, const std::vector<int32_t>& o,
                       const KeyLayout& layout) { attention(q, k, v, o, layout, {}); };
  const Heads q{f32({4, 6}), 0, 2, 3}, k{f32({4, 3}), 0, 1, 3}, v{f32({4, 5}), 0, 1, 5};
  EXPECT_NO_THROW(run(q, k, v, offsets, keys));
  expect_error(
      [&] {
        run({f32({4, 5}), 0, 2, 3}, k, v, offsets, keys);
      },
      {"attention", "q needs 2 heads of 3 columns"});
  expect_error([&] { run({q.x, 1, 2, 3}, k, v, offsets, keys); }, {"attention", "from column 1"});
  expect_error([&] { run({q.x, -1, 2, 3}, k, v, offsets, keys); }, {"attention", "from column -1"});
  expect_error([&] { run({{}, 0, 2, 3}, k, v, offsets, keys); }, {"attention", "nothing"});
  expect_error([&] { run({q.x, 0, 0, 3}, k, v, offsets, keys); }, {"attention", "q needs 0 heads"});
  expect_error(
      [&] {
        run(q, {bf16({4, 3}), 0, 1, 3}, v, offsets, keys);
      },
      {"attention", "k must be f32", "bf16"});
  expect_error(
      [&] {
        run(q, k, {bf16({4, 5}), 0, 1, 5}, offsets, keys);
      },
      {"attention", "v must be f32", "bf16"});
  expect_error(
      [&] {
        run(q, {f32({4, 2}), 0, 1, 2}, v, offsets, keys);
      },
      {"attention", "2 query heads of 3"});
  expect_error(
      [&] {
        run({f32({4, 9}), 0, 3, 3}, {f32({4, 6}), 0, 2, 3}, {f32({4, 10}), 0, 2, 5}, offsets, keys);
      },
      {"attention", "3 query heads"});
  expect_error([&] { run(q, k, {f32({3, 5}), 0, 1, 5}, offsets, keys); }, {"attention", "4 and 3 rows"});
  expect_error([&] { run(q, k, v, {0, 3}, keys); }, {"attention", "do not divide 4 queries"});
  expect_error([&] { run(q, k, v, {1, 4}, keys); }, {"attention", "do not divide 4 queries"});
  expect_error([&] { run(q, k, v, {}, keys); }, {"attention"});
  expect_error(
      [&] {
        run(q, k, v, {0, 5, 4}, KeyLayout::contiguous(std::vector<int32_t>{0, 2, 4}));
      },
      {"attention", "must not decrease"});
  KeyLayout outside = keys;
  outside.lengths = {5};
  expect_error([&] { run(q, k, v, offsets, outside); }, {"attention", "sequence 0", "outside the 4 rows"});
  outside = keys;
  outside.blocks = {-1};
  expect_error([&] { run(q, k, v, offsets, outside); }, {"attention", "outside"});
  outside.blocks = {};
  expect_error([&] { run(q, k, v, offsets, outside); }, {"attention", "outside"});
  expect_error(
      [&] {
        run({i32({1, 2, 3}).reshape({1, 3}), 0, 1, 3}, {i32({1, 2, 3}).reshape({1, 3}), 0, 1, 3},
            {i32({1, 2, 3}).reshape({1, 3}), 0, 1, 3}, {0, 1},
            KeyLayout::contiguous(std::vector<int32_t>{0, 1}));
      },
      {"attention", "i32"});
}

TEST(OpRefusals, AttentionIsProbedWithoutDropoutAndKeepsItsShapes) {
  const std::vector<int32_t> offsets = {0, 2};
  const Tensor x = f32({2, 3});
  const Heads h{x, 0, 1, 3};
  const auto run = [&](const AttentionOptions& options, const AttentionVisitors& visitors) {
    attention_unfused(h, h, h, offsets, KeyLayout::contiguous(offsets), options, visitors);
  };
  AttentionOptions dropped;
  dropped.dropout.p = 0.5F;
  expect_error([&] { run(dropped, {}); }, {"attention", "without dropout"});
  const HeadVisitor other = [&](int64_t, int64_t, Tensor& value) { value = x; };
  expect_error([&] { run({}, {.scores = other}); }, {"attention", "scores", "[2, 3]"});
  expect_error([&] { run({}, {.probabilities = other}); }, {"attention", "probabilities", "[2, 2]"});
}

TEST(OpRefusals, CrossEntropy) {
  const Tensor x = f32({2, 3}), w = f32({5, 3});
  const Indices targets({0, 4});
  expect_error(
      [&] {
        unembed_cross_entropy(x, f32({5, 2}), {}, targets, 1);
      },
      {"unembed_cross_entropy", "[5, 2]", "[2, 3]"});
  expect_error([&] { unembed_cross_entropy(x, {}, {}, targets, 1); }, {"unembed_cross_entropy", "weight"});
  expect_error(
      [&] {
        unembed_cross_entropy(bf16({2, 3}), w, {}, targets, 1);
      },
      {"unembed_cross_entropy", "weight", "bf16"});
  expect_error([&] { unembed_cross_entropy(x, w, {}, Indices({0}), 1); },
               {"unembed_cross_entropy", "targets", "[2]", "[1]"});
  expect_error([&] { unembed_cross_entropy(x, w, {}, {}, 1); },
               {"unembed_cross_entropy", "targets", "[2]", "nothing"});
  expect_error(
      [&] {
        unembed_cross_entropy(x, w, {}, Indices({0, 5}), 1);
      },
      {"target 5", "row 1", "5 tokens"});
  expect_error([&] { unembed_cross_entropy(x, w, {}, Indices({-1, 0}), 1); }, {"target -1", "row 0"});
}

// The forward pass computes the gradient of the loss for a root. Any other use would be silently wrong.
TEST(OpRefusals, CrossEntropyMustBeTheRoot) {
  Tensor x = f32({2, 3});
  make_leaf(x, f32({2, 3}));
  const auto r = unembed_cross_entropy(x, f32({5, 3}), {}, Indices({0, 4}), 1);
  expect_error([&] { backward(add(r.loss, r.loss)); }, {"unembed_cross_entropy", "root"});
}

}  // namespace
}  // namespace qkv::op_refusals_test

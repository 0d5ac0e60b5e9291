// The attention-free transformer's sums: gradients, extremes, parts.
#include "qkv/ops/attention_free.h"

#include "tests/gradient/gradient_check.h"
#include "tests/unit/expect_error.h"

namespace qkv::attention_free_test {
namespace {

using testing::expect_error;
using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

const std::vector<int32_t> kOffsets = {0, 1, 9, 9, 14};
constexpr int64_t kRows = 14;

PositionWeights weights(int form, const Tensor& w) {
  if (form == 0) return {};
  if (form == 1) return {.table = w};
  if (form == 2) return {.table = w, .window = 3};
  return {.by_distance = w, .window = 3};
}
Tensor drawn_weights(int form, bool causal) {
  return form == 3 ? uniform({2, causal ? 3 : 5}, 4) : uniform({10, 10}, 4);
}

TEST(AttentionFreeGradient, IsTheDifference) {
  for (const bool causal : {true, false})
    for (int form = 0; form < 4; ++form) {
      SCOPED_TRACE(fmt::format("{} {}", form, causal));
      Tensors in = {uniform({kRows, 6}, 1), uniform({kRows, 6}, 2)};
      if (form > 0) in.push_back(drawn_weights(form, causal));
      expect_gradients(
          [&](const Tensors& x) {
            return Tensors{attention_free(x[0], x[1], weights(form, form > 0 ? x[2] : Tensor()), kOffsets,
                                          KeyLayout::contiguous(kOffsets), causal)};
          },
          in, {.h = 0x1p-6, .fifth = 400, .roundings = 32, .keep_f32 = {2}});
    }
}

// More columns than a task has, and weights of some heads.
TEST(AttentionFree, IsItsDefinition) {
  const int64_t width = 150;
  const Tensor k = uniform({kRows, width}, 1, -3, 3), v = uniform({kRows, width}, 2);
  for (const bool causal : {true, false})
    for (int form = 0; form < 4; ++form) {
      const Tensor w = drawn_weights(form, causal);
      const Tensor y =
          attention_free(k, v, weights(form, w), kOffsets, KeyLayout::contiguous(kOffsets), causal);
      for (size_t s = 0; s + 1 < kOffsets.size(); ++s)
        for (int64_t t = kOffsets[s]; t < kOffsets[s + 1]; ++t)
          for (int64_t c = 0; c < width; ++c) {
            double above = 0, below = 0;
            for (int64_t j = kOffsets[s]; j < (causal ? t + 1 : kOffsets[s + 1]); ++j) {
              const int64_t distance = t - j;
              double weight = 0;
              if (form == 1 || (form == 2 && std::abs(distance) < 3))
                weight = w.row<float>(t - kOffsets[s])[j - kOffsets[s]];
              if (form == 3 && std::abs(distance) < 3)
                weight = w.row<float>(c / 75)[distance + (causal ? 0 : 2)];
              const double e = std::exp(double{k.row<float>(j)[c]} + weight);
              above += e * v.row<float>(j)[c];
              below += e;
            }
            EXPECT_NEAR(y.row<float>(t)[c], above / below, 2e-6) << form << " " << t << " " << c;
          }
    }
}

// Keys of any size: the largest decides, and nothing overflows.
TEST(AttentionFree, KeepsSumsFinite) {
  Tensor k = Tensor::zeros({4, 1}, DType::f32);
  const Tensor v = Tensor::of({4, 1}, std::vector<float>{1, 2, 3, 4});
  const std::vector<float> sizes = {-3e4F, 500, -200, 2e4F};
  std::ranges::copy(sizes, k.mutable_values<float>().begin());
  const std::vector<int32_t> offsets = {0, 4};
  const Tensor y = attention_free(k, v, {}, offsets, KeyLayout::contiguous(offsets), true);
  EXPECT_EQ(testing::floats(y), (std::vector<float>{1, 2, 2, 4}));
}

TEST(AttentionFree, ChecksItsInput) {
  const Tensor k = uniform({4, 6}, 1), w = uniform({3, 3}, 2);
  const std::vector<int32_t> offsets = {0, 4};
  const KeyLayout keys = KeyLayout::contiguous(offsets);
  expect_error([&] { attention_free(k, w, {}, offsets, keys, true); }, {"values like keys"});
  expect_error([&] { attention_free(k, k, {.table = w}, offsets, keys, true); }, {"4 tokens", "3 positions"});
  expect_error([&] { attention_free(k, k, {.table = k}, offsets, keys, true); }, {"a table f32"});
  expect_error([&] { attention_free(k, k, {.by_distance = w, .window = 2}, offsets, keys, true); },
               {"by distance f32 [heads, 2]"});
  expect_error(
      [&] {
        attention_free(k, k, {}, std::vector<int32_t>{0, 5}, keys, true);
      },
      {"5 queries", "4 keys"});
}

}  // namespace
}  // namespace qkv::attention_free_test

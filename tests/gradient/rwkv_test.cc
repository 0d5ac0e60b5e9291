// Token shift, products of rows and RWKV-4's weighted means: gradients, going on from a state, what does not
// fit.
// Covers: qkv/ops/token_shift.cc, qkv/ops/wkv.cc, qkv/ops/products.cc
#include <cmath>

#include "qkv/ops/products.h"
#include "qkv/ops/token_shift.h"
#include "qkv/ops/wkv.h"
#include "tests/gradient/gradient_check.h"
#include "tests/gradient/parts_check.h"
#include "tests/unit/expect_error.h"

namespace qkv::rwkv_test {
namespace {

using testing::expect_error;
using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

const std::vector<int32_t> kOffsets = {0, 1, 36, 36, 40};
const int64_t kSequences = std::ssize(kOffsets) - 1, kRows = kOffsets.back();

TEST(PreviousRowsGradient, IsTheDifference) {
  for (const bool begun : {false, true}) {
    Tensors in = {uniform({kRows, 3}, 1)};
    if (begun) in.push_back(uniform({kSequences, 3}, 2));
    expect_gradients(
        [&](const Tensors& x) { return Tensors{previous_rows(x[0], begun ? x[1] : Tensor(), kOffsets)}; }, in,
        {.h = 0.25, .keep_f32 = {1}});
  }
}

TEST(PreviousRows, StayWithinTheirSequence) {
  const std::vector<int32_t> offsets = {0, 2, 2, 3};
  const Tensor x = Tensor::of({3, 1}, std::vector<float>{1, 2, 3}),
               first = Tensor::of({3, 1}, std::vector<float>{7, 8, 9});
  const Tensor fresh = previous_rows(x, {}, offsets), going_on = previous_rows(x, first, offsets);
  EXPECT_TRUE(std::ranges::equal(fresh.values<float>(), std::vector<float>{0, 1, 0}));
  EXPECT_TRUE(std::ranges::equal(going_on.values<float>(), std::vector<float>{7, 1, 9}));
}

TEST(MixedGradient, IsTheDifference) {
  for (const bool of_rows : {false, true})
    expect_gradients(
        [](const Tensors& x) { return Tensors{mixed(x[0], x[1], x[2])}; },
        {uniform({5, 6}, 1), uniform({5, 6}, 2), of_rows ? uniform({5, 6}, 3) : uniform({6}, 3)},
        {.h = 0.25, .bf16_roundings = 6, .keep_f32 = of_rows ? std::vector<int>{} : std::vector<int>{2}});
}

TEST(ProductGradient, IsTheDifference) {
  expect_gradients([](const Tensors& x) { return Tensors{product(x[0], x[1])}; },
                   {uniform({5, 6}, 1), uniform({5, 6}, 2)}, {.h = 0.25});
}

TEST(HeadDotsGradient, IsTheDifference) {
  for (const int64_t heads : {1, 2, 6})
    expect_gradients([&](const Tensors& x) { return Tensors{head_dots(x[0], x[1], heads)}; },
                     {uniform({5, 6}, 1), uniform({5, 6}, 2)}, {.h = 0.25, .bf16_roundings = 4});
}

Tensors inputs(int64_t width, bool begun) {
  Tensors in = {uniform({kRows, width}, 1), uniform({kRows, width}, 2), uniform({width}, 3, -2, 0.5),
                uniform({width}, 4)};
  if (begun) in.push_back(uniform({kSequences, 3 * width}, 5, 0.25, 1));
  return in;
}
WkvResult run(const Tensors& in, const std::vector<int32_t>& offsets,
              const std::vector<int32_t>& marks = {}) {
  return wkv({in[0], in[1], in[2], in[3]}, in.size() > 4 ? in[4] : Tensor(), offsets, marks);
}

TEST(WkvGradient, IsTheDifference) {
  for (const int64_t width : {1, 6, 35})
    for (const bool begun : {false, true}) {
      SCOPED_TRACE(fmt::format("width {}, {}", width, begun));
      expect_gradients(
          [&](const Tensors& in) { return Tensors{run(in, kOffsets).y}; }, inputs(width, begun),
          {.h = 0x1p-5, .fifth = 400, .roundings = 64, .bf16_roundings = 6, .keep_f32 = {2, 3, 4}});
    }
}

// The definition, summed up in f64; numbers that floats could not take the exponential of are no trouble.
TEST(Wkv, IsTheWeightedMean) {
  for (const float shift : {0.0F, 300.0F, -300.0F}) {
    const int64_t width = 3;
    Tensors in = inputs(width, false);
    for (float& k : in[0].mutable_values<float>()) k = 4 * k + shift;
    const Tensor y = run(in, kOffsets).y;
    const auto at = [&](const Tensor& x, int64_t i) { return double{x.values<float>()[i]}; };
    for (size_t s = 0; s + 1 < kOffsets.size(); ++s)
      for (int64_t t = kOffsets[s]; t < kOffsets[s + 1]; ++t)
        for (int64_t c = 0; c < width; ++c) {
          double above = 0, below = 0;
          for (int64_t i = kOffsets[s]; i <= t; ++i) {
            const double fading = -std::exp(at(in[2], c)) * static_cast<double>(t - 1 - i),
                         weight =
                             std::exp(at(in[0], i * width + c) - shift + (i == t ? at(in[3], c) : fading));
            above += weight * at(in[1], i * width + c);
            below += weight;
          }
          EXPECT_NEAR(at(y, t * width + c), above / below, 3e-5) << shift << ", row " << t;
        }
  }
}

TEST(Wkv, GoesOnFromAStateWithTheSameBits) {
  for (const int64_t width : {1, 35}) {
    Tensors in = inputs(width, false);
    in.push_back({});
    const auto rows = [&](int64_t begin, int64_t end, const Tensor& state,
                          const std::vector<int32_t>& marks) {
      Tensors part = in;
      for (const size_t i : {0, 1}) part[i] = in[i].slice_rows(begin, end).clone();
      part.back() = state;
      return run(part, {0, static_cast<int32_t>(end - begin)}, marks);
    };
    const Tensor first = Tensor::zeros({1, 3 * width}, DType::f32);
    const WkvResult whole = rows(0, 40, {}, {});
    testing::expect_bits_of_whole(whole, first, rows);
  }
}

TEST(Rwkv, RefusesWhatDoesNotFit) {
  const Tensors in = inputs(6, true);
  const auto with = [&](size_t i, const Tensor& x) {
    Tensors changed = in;
    changed[i] = x;
    run(changed, kOffsets);
  };
  expect_error([&] { with(1, uniform({kRows, 5}, 1)); }, {"v like k"});
  expect_error([&] { with(2, uniform({5}, 1)); }, {"rates"});
  expect_error([&] { with(4, uniform({kSequences, 6}, 1)); }, {"first"});
  expect_error([&] { run(in, {0, 3}); }, {"offsets"});
  expect_error([&] { run(in, kOffsets, {1}); }, {"marks"});
  expect_error([&] { run(in, kOffsets, {2, 0, 0, 0}); }, {"mark at 2"});
  expect_error([&] { previous_rows(in[0], {}, std::vector<int32_t>{0, 3}); }, {"offsets"});
  expect_error([&] { previous_rows(in[0], uniform({1, 6}, 1), kOffsets); }, {"first"});
  expect_error([&] { mixed(in[0], uniform({5, 6}, 1), in[2]); }, {"rows like"});
  expect_error([&] { mixed(in[0], in[1], uniform({5}, 1)); }, {"parts"});
  expect_error([&] { product(in[0], in[2]); }, {"product"});
  expect_error([&] { head_dots(in[0], in[1], 4); }, {"4 heads"});
}

}  // namespace
}  // namespace qkv::rwkv_test

// Short convolutions, steps and the selective scan: gradients, going on from a state, what does not fit.
// Covers: qkv/ops/short_convolution.cc, qkv/ops/time_step.cc, qkv/ops/selective_scan.cc
#include <limits>

#include "qkv/ops/products.h"
#include "qkv/ops/selective_scan.h"
#include "qkv/ops/short_convolution.h"
#include "qkv/ops/time_step.h"
#include "tests/gradient/gradient_check.h"
#include "tests/gradient/parts_check.h"
#include "tests/unit/expect_error.h"

namespace qkv::state_space_test {
namespace {

using testing::expect_error;
using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

constexpr float kNoLimit = std::numeric_limits<float>::infinity();
const std::vector<int32_t> kOffsets = {0, 1, 36, 36, 40};
const int64_t kSequences = std::ssize(kOffsets) - 1, kRows = kOffsets.back();

TEST(ShortConvolutionGradient, IsTheDifference) {
  for (const int64_t kernel : {1, 2, 5})
    for (const int64_t width : {1, 3, 67})
      for (const bool all : {false, true}) {
        SCOPED_TRACE(fmt::format("kernel {}, width {}, {}", kernel, width, all));
        Tensors in = {uniform({kRows, width}, 1), uniform({width, kernel}, 2)};
        if (all)
          in.push_back(uniform({width}, 3)), in.push_back(uniform({kSequences, (kernel - 1) * width}, 4));
        expect_gradients(
            [&](const Tensors& x) {
              return Tensors{
                  short_convolution(x[0], x[1], all ? x[2] : Tensor(), all ? x[3] : Tensor(), kOffsets)};
            },
            in, {.h = 0.25, .bf16_roundings = 4, .keep_f32 = {1, 2, 3}});
      }
}

TEST(ShortConvolution, IsTheSumOverTheTokensBefore) {
  const std::vector<int32_t> offsets = {0, 3};
  const Tensor x = Tensor::of({3, 2}, std::vector<float>{1, 10, 2, 20, 3, 30}),
               weight = Tensor::of({2, 3}, std::vector<float>{1, 2, 4, 1, 0, 1}),
               first = Tensor::of({1, 4}, std::vector<float>{5, 50, 6, 60});
  const Tensor y = short_convolution(x, weight, Tensor::of({2}, std::vector<float>{0.5F, 0}), first, offsets);
  const auto got = y.values<float>();
  // 5 + 2 6 + 4 1, 6 + 2 1 + 4 2, 1 + 2 2 + 4 3, each and 0.5; 50 + 10, 60 + 20, 10 + 30.
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()), (std::vector<float>{21.5, 60, 16.5, 80, 17.5, 40}));
  const Tensor tail = convolution_tail(x, first, offsets, std::vector<int32_t>{1}, 3);
  const auto rows = tail.values<float>();
  EXPECT_EQ(std::vector<float>(rows.begin(), rows.end()), (std::vector<float>{6, 60, 1, 10}));
}

TEST(TimeStepsGradient, IsTheDifference) {
  for (const auto& [low, high] : {std::pair{0.0F, kNoLimit}, {0.1F, 5.0F}})
    expect_gradients(
        [low = low, high = high](const Tensors& x) {
          const Tensor steps = time_steps(x[0], x[1], low, high);
          return Tensors{steps, log_decays(steps, x[2])};
        },
        {uniform({5, 3}, 1), uniform({3}, 2), uniform({3}, 3)},
        {.h = 0x1p-5, .fifth = 200, .roundings = 64, .bf16_roundings = 6, .keep_f32 = {1, 2}});
}

TEST(TimeSteps, StayWithinTheirLimits) {
  const Tensor x = Tensor::of({1, 4}, std::vector<float>{-30, 0, 2, 50});
  const Tensor steps = time_steps(x, Tensor::zeros({4}, DType::f32), 0.7F, 2);
  const auto got = steps.values<float>();
  EXPECT_EQ(got[0], 0.7F);
  EXPECT_EQ(got[1], 0.7F);  // ln 2
  EXPECT_EQ(got[2], 2);
  EXPECT_EQ(got[3], 2);
  EXPECT_EQ(time_steps(x, Tensor::zeros({4}, DType::f32), 0, kNoLimit).values<float>()[3], 50);
}

TEST(ScaledHeadsGradient, IsTheDifference) {
  for (const bool of_rows : {false, true})
    expect_gradients([](const Tensors& x) { return Tensors{scaled_heads(x[0], x[1])}; },
                     {uniform({5, 6}, 1), of_rows ? uniform({5, 3}, 2) : uniform({3}, 2)},
                     {.h = 0.25, .keep_f32 = {1}});
}

struct Shape4 {
  int64_t channels, state, groups;
  bool skip, first;
};
constexpr Shape4 kShapes[] = {
    {1, 1, 1, false, false}, {6, 3, 2, true, true}, {35, 4, 1, true, false}, {40, 2, 2, false, true}};

Tensors inputs(const Shape4& s) {
  Tensors in = {uniform({kRows, s.channels}, 1), uniform({kRows, s.channels}, 2, 0.1, 0.9),
                uniform({s.channels, s.state}, 3, -1, 0.5), uniform({kRows, s.groups * s.state}, 4),
                uniform({kRows, s.groups * s.state}, 5)};
  if (s.skip) in.push_back(uniform({s.channels}, 6));
  if (s.first) in.push_back(uniform({kSequences, s.channels * s.state}, 7));
  return in;
}

SelectiveScanResult run(const Shape4& s, const Tensors& in, const std::vector<int32_t>& offsets,
                        const std::vector<int32_t>& marks = {}) {
  return selective_scan({.x = in[0],
                         .steps = in[1],
                         .log_rates = in[2],
                         .B = in[3],
                         .C = in[4],
                         .skip = s.skip ? in[5] : Tensor()},
                        s.first ? in.back() : Tensor(), offsets, marks);
}

TEST(SelectiveScanGradient, IsTheDifference) {
  for (const Shape4& s : kShapes) {
    SCOPED_TRACE(fmt::format("{} channels, {}, {} groups", s.channels, s.state, s.groups));
    expect_gradients(
        [&](const Tensors& in) {
          const SelectiveScanResult r = run(s, in, kOffsets);
          return Tensors{r.y, r.state};
        },
        inputs(s),
        {.h = 0x1p-5, .fifth = 400, .roundings = 64, .bf16_roundings = 6, .keep_f32 = {1, 2, 5, 6}});
  }
}

TEST(SelectiveScan, GoesOnFromAStateWithTheSameBits) {
  for (Shape4 s : kShapes) {
    s.first = true;
    const Tensors in = inputs(s);
    const std::vector<int32_t> all = {0, 40};
    const auto rows = [&](int64_t begin, int64_t end, const Tensor& state,
                          const std::vector<int32_t>& marks) {
      Tensors part = in;
      for (const size_t i : {0, 1, 3, 4}) part[i] = in[i].slice_rows(begin, end).clone();
      part.back() = state;
      return run(s, part, {0, static_cast<int32_t>(end - begin)}, marks);
    };
    const Tensor first = in.back().slice_rows(0, 1);
    const SelectiveScanResult whole = rows(0, 40, first, {});
    testing::expect_bits_of_whole(whole, first, rows);
  }
}

TEST(SelectiveScan, RefusesWhatDoesNotFit) {
  const Shape4 s = kShapes[1];
  Tensors in = inputs(s);
  const auto with = [&](size_t i, const Tensor& x) {
    Tensors changed = in;
    changed[i] = x;
    run(s, changed, kOffsets);
  };
  expect_error([&] { with(1, uniform({kRows, 5}, 1)); }, {"steps"});
  expect_error([&] { with(2, uniform({5, 3}, 1)); }, {"log_rates"});
  expect_error([&] { with(3, uniform({kRows, 4}, 1)); }, {"B and C"});
  expect_error([&] { with(5, uniform({5}, 1)); }, {"skip"});
  expect_error([&] { with(6, uniform({kSequences, 5}, 1)); }, {"first"});
  expect_error([&] { run(s, in, kOffsets, {1}); }, {"marks"});
  expect_error([&] { run(s, in, kOffsets, {2, 0, 0, 0}); }, {"mark at 2"});
  expect_error([&] { short_convolution(in[0], in[2], {}, uniform({1, 2}, 1), kOffsets); }, {"first rows"});
  expect_error([&] { short_convolution(in[0], uniform({5, 2}, 1), {}, {}, kOffsets); }, {"weight"});
  expect_error([&] { time_steps(in[0], uniform({5}, 1), 0, 1); }, {"bias"});
  expect_error([&] { time_steps(in[0], uniform({6}, 1), 2, 1); }, {"low"});
  expect_error([&] { scaled_heads(in[0], uniform({4}, 1)); }, {"factors"});
}

}  // namespace
}  // namespace qkv::state_space_test

#include "qkv/nn/recurrent_state.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"

namespace qkv::recurrent_state_test {
namespace {

using testing::expect_error;
using Numbers = std::vector<float>;

Tensor rows(const Numbers& x) {
  return Tensor::of({std::ssize(x) / 2, 2}, x);
}

Numbers last(const RecurrentState& s) {
  const Tensor x = s.last();
  return {x.values<float>().begin(), x.values<float>().end()};
}

TEST(RecurrentState, GoesOnFromWhereItIs) {
  RecurrentState state(2, 2);
  EXPECT_FALSE(state.begun());
  state.truncate(0, 0);
  state.begin(rows({1, 2, 3, 4}));
  EXPECT_EQ(state.length(0), 0);
  state.append(rows({5, 6, 7, 8, 9, 10}), std::vector<int32_t>{0, 1, 3});
  EXPECT_EQ(state.length(0), 1);
  EXPECT_EQ(state.length(1), 2);
  EXPECT_EQ(last(state), (Numbers{5, 6, 9, 10}));
  const auto copy = state.fork();
  state.truncate(1, 1);
  state.truncate(0, 0);
  EXPECT_EQ(last(state), (Numbers{1, 2, 7, 8}));
  expect_error([&] { state.truncate(0, 1); }, {"truncate"});
  expect_error([&] { state.truncate(0, -1); }, {"truncate"});
  state.reorder(std::vector<int32_t>{1, 1, 0});
  EXPECT_EQ(last(state), (Numbers{7, 8, 7, 8, 1, 2}));
  RecurrentState loaded(0, 2);
  loaded.load(copy->save());
  EXPECT_EQ(last(loaded), (Numbers{5, 6, 9, 10}));
  EXPECT_EQ(loaded.length(1), 2);
  loaded.truncate(1, 1);
  EXPECT_EQ(last(loaded), (Numbers{5, 6, 7, 8}));
}

// Whatever it reads, and whether at once or token by token: the start, and the last tokens.
TEST(RecurrentState, KeepsTheStartAndTheLastTokens) {
  constexpr int64_t kLength = 100, kBack = RecurrentState::kKept - 1;
  for (const int64_t step : {1, 7, 100}) {
    RecurrentState state(1, 2);
    state.begin(rows({-1, -2}));
    for (int64_t t = 0; t < kLength; t += step) {
      Numbers values;
      for (int64_t i = t; i < std::min(t + step, kLength); ++i) values.insert(values.end(), {float(i), 0});
      state.append(rows(values), std::vector<int32_t>{0, static_cast<int32_t>(values.size() / 2)});
    }
    EXPECT_EQ(state.length(0), kLength);
    EXPECT_EQ(state.save()[0].values<int32_t>()[0], RecurrentState::kKept + 1) << step;
    expect_error([&] { state.truncate(0, kLength - kBack - 1); }, {"15 tokens at most", "100", "84"});
    state.truncate(0, kLength - kBack);
    EXPECT_EQ(last(state), (Numbers{float(kLength - kBack - 1), 0}));
    state.truncate(0, 0);
    EXPECT_EQ(last(state), (Numbers{-1, -2}));
  }
}

TEST(RecurrentState, RefusesWhatDoesNotFit) {
  RecurrentState state(2, 2);
  const std::vector<int32_t> one_each = {0, 1, 2};
  expect_error([&] { state.append(rows({1, 2, 3, 4}), one_each); }, {"not begun"});
  expect_error([&] { static_cast<void>(state.last()); }, {"not begun"});
  expect_error([&] { state.begin(rows({1, 2})); }, {"[2, 2]", "[1, 2]"});
  state.begin(rows({1, 2, 3, 4}));
  expect_error([&] { state.begin(rows({1, 2, 3, 4})); }, {"has begun"});
  expect_error([&] { state.append(rows({1, 2}), one_each); }, {"[2, 2]", "[1, 2]"});
  expect_error([&] { state.append(rows({1, 2}), std::vector<int32_t>{0, 1}); }, {"2 sequences, got 1"});
  expect_error([&] { state.reorder(std::vector<int32_t>{2}); }, {"no sequence 2"});
  expect_error([&] { state.truncate(2, 0); }, {"no sequence 2"});
  const auto ids = [](const std::vector<int32_t>& x) { return Tensor::of({std::ssize(x)}, x); };
  const auto refuse = [&](const std::vector<Tensor>& saved, const std::string& why) {
    expect_error([&] { state.load(saved); }, {why});
    EXPECT_EQ(last(state), (Numbers{1, 2, 3, 4}));
  };
  refuse({ids({1}), ids({0})}, "expected");
  refuse({ids({1}), ids({0}), rows({1, 2, 3, 4})}, "expected");
  refuse({ids({2}), ids({0}), rows({1, 2})}, "number of snapshots");
  refuse({ids({-1}), ids({0}), rows({1, 2})}, "number of snapshots");
  refuse({ids({1, 0}), ids({0}), rows({1, 2})}, "number of snapshots");
  refuse({ids({1}), ids({3}), rows({1, 2})}, "number of snapshots");
  refuse({ids({2}), ids({0, 0}), rows({1, 2, 3, 4})}, "must rise");
  refuse({ids({1}), ids({0, 1}), rows({1, 2, 3, 4})}, "of 1 sequences");
}

}  // namespace
}  // namespace qkv::recurrent_state_test

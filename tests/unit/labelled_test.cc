// Batches of sequences with what is to be said of them.
#include "qkv/data/labelled.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"

namespace qkv {
namespace {

using testing::expect_error;
using Ids = std::vector<int32_t>;

Ids values(const Tensor& t) {
  const auto v = t.values<int32_t>();
  return {v.begin(), v.end()};
}

LabelledStream stream_of(Output output, const std::vector<Ids>& targets) {
  LabelledStream s;
  s.output = output;
  const std::vector<Ids> tokens = {{1, 2, 3}, {4}, {5, 6}};
  for (size_t i = 0; i < 3; ++i)
    s.append(tokens[i], Ids(tokens[i].size(), static_cast<int32_t>(i % 2)), targets[i]);
  return s;
}

TEST(Labelled, SequenceClasses) {
  const LabelledStream s = stream_of(Output::sequence_classes, {{7}, {8}, {9}});
  EXPECT_EQ(s.size(), 3);
  EXPECT_EQ(s.lengths(), (std::vector<int64_t>{3, 1, 2}));
  const Batch b = labelled_batch(s, std::vector<int64_t>{2, 0});
  EXPECT_EQ(values(b.ids), (Ids{5, 6, 1, 2, 3}));
  EXPECT_EQ(b.layout.offsets, (Ids{0, 2, 5}));
  EXPECT_EQ(values(b.segments), (Ids{0, 0, 0, 0, 0}));
  EXPECT_EQ(values(b.targets), (Ids{9, 7}));
  EXPECT_EQ(b.target_count, 2);
  EXPECT_EQ(values(labelled_batch(s, std::vector<int64_t>{1}).segments), Ids{1});
}

TEST(Labelled, TokenClasses) {
  const LabelledStream s = stream_of(Output::token_classes, {{kIgnored, 1, 2}, {3}, {4, kIgnored}});
  const Batch b = labelled_batch(s, std::vector<int64_t>{1, 2, 0});
  EXPECT_EQ(values(b.ids), (Ids{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(values(b.targets), (Ids{3, 4, kIgnored, kIgnored, 1, 2}));
  EXPECT_EQ(b.targets.shape(), (Shape{6}));
  EXPECT_EQ(b.target_count, 4);
}

TEST(Labelled, Spans) {
  const LabelledStream s = stream_of(Output::span, {{1, 2}, {kIgnored, kIgnored}, {0, 0}});
  const Batch b = labelled_batch(s, std::vector<int64_t>{0, 1, 2});
  EXPECT_EQ(values(b.targets), (Ids{1, 2, kIgnored, kIgnored, 0, 0}));
  EXPECT_EQ(b.targets.shape(), (Shape{3, 2}));
  EXPECT_EQ(b.target_count, 2);  // sequences
  const auto targets = s.targets_of(2);
  EXPECT_EQ(Ids(targets.begin(), targets.end()), (Ids{0, 0}));
}

TEST(Labelled, NumbersThatDoNotFitAreRefused) {
  LabelledStream s;
  expect_error([&] { s.append({}, {}, {1}); }, {"0 tokens"});
  expect_error([&] { s.append({1, 2}, {0}, {1}); }, {"1 segments"});
  expect_error([&] { s.append({1, 2}, {0, 0}, {1, 2}); }, {"2 targets of 1"});
  s.output = Output::token_classes;
  expect_error([&] { s.append({1, 2}, {0, 0}, {1}); }, {"1 targets of 2"});
  s.output = Output::span;
  expect_error([&] { s.append({1, 2}, {0, 0}, {1}); }, {"1 targets of 2"});
  EXPECT_EQ(s.size(), 0);  // nothing was appended
}

}  // namespace
}  // namespace qkv

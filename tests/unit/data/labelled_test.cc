// Batches of labelled sequences.
#include "qkv/data/labelled.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"

namespace qkv::labelled_test {
namespace {

using testing::expect_error;
using Ids = std::vector<int32_t>;

Ids values(const Indices& t) {
  const auto v = t.values();
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

// Questions of two choices and of three, in another order.
TEST(Labelled, Questions) {
  LabelledStream s;
  s.questions = {0};
  for (const int32_t id : {1, 2, 3, 4, 5}) {
    s.append(Ids(static_cast<size_t>(id), id), Ids(static_cast<size_t>(id), 0), {});
    if (id == 2) s.end_question(1);
  }
  EXPECT_THROW(s.end_question(3), Error);
  EXPECT_THROW(s.end_question(-1), Error);
  s.end_question(0);
  EXPECT_THROW(s.end_question(0), Error);  // no choice follows
  EXPECT_THROW(s.append({1}, {0}, {1}), Error);
  EXPECT_EQ(s.size(), 2);
  EXPECT_EQ(s.lengths(), (std::vector<int64_t>{3, 12}));
  EXPECT_EQ(s.sequences_of(1), (std::pair<int64_t, int64_t>{2, 5}));
  const Batch b = labelled_batch(s, std::vector<int64_t>{1, 0});
  EXPECT_EQ(values(b.ids), (Ids{3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5, 1, 2, 2}));
  EXPECT_EQ(b.layout.offsets, (Ids{0, 3, 7, 12, 13, 15}));
  EXPECT_EQ(b.choices, (Ids{0, 3, 5}));
  EXPECT_EQ(values(b.targets), (Ids{0, 1}));
  EXPECT_EQ(b.target_count, 2);
  Augmentation noise;
  noise.mask = 1;
  noise.mask_id = 9;
  const Batch masked = labelled_batch(s, std::vector<int64_t>{0}, noise, 1, 1);
  EXPECT_EQ(values(masked.ids), (Ids{9, 9, 9}));
  EXPECT_EQ(masked.choices, (Ids{0, 2}));
  EXPECT_EQ(values(masked.targets), (Ids{1}));
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

// A text of n tokens, from id 10 on, between special ones.
LabelledStream long_texts(Output output, int64_t n, int64_t texts) {
  LabelledStream s;
  s.output = output;
  for (int64_t t = 0; t < texts; ++t) {
    Ids ids = {1};
    for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(10 + i));
    ids.push_back(2);
    s.append(ids, Ids(ids.size(), 0),
             output == Output::sequence_classes ? Ids{static_cast<int32_t>(t)} : Ids(ids.size(), 3));
  }
  return s;
}

Augmentation noise(double drop, double swap, double mask) {
  Augmentation a{drop, swap, mask, 3, std::vector<bool>(2000)};
  for (int id = 0; id < 10; ++id) a.special[id] = true;
  return a;
}

TEST(Augmentation, DropsItsShareOfOrdinaryTokens) {
  const LabelledStream s = long_texts(Output::sequence_classes, 1000, 2);
  const std::vector<int64_t> both = {0, 1};
  const Batch b = labelled_batch(s, both, noise(0.25, 0, 0), 1, 0);
  const Ids ids = values(b.ids);
  EXPECT_NEAR(static_cast<double>(ids.size()), 2 * (750 + 2), 80);  // 4 deviations of sqrt(2000 3/16)
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(ids[b.layout.offsets[1]], 1);
  EXPECT_TRUE(std::is_sorted(ids.begin() + 1, ids.begin() + b.layout.offsets[1] - 1));
  EXPECT_EQ(values(b.targets), (Ids{0, 1}));
  EXPECT_EQ(b.target_count, 2);
  EXPECT_EQ(values(b.segments).size(), ids.size());
  // Each text loses different tokens.
  EXPECT_NE(Ids(ids.begin(), ids.begin() + b.layout.offsets[1]),
            Ids(ids.begin() + b.layout.offsets[1], ids.end()));
  EXPECT_EQ(values(labelled_batch(s, both, noise(0.25, 0, 0), 1, 0).ids), ids);
  EXPECT_NE(values(labelled_batch(s, both, noise(0.25, 0, 0), 1, 1).ids), ids);
}

TEST(Augmentation, KeepsOneToken) {
  const LabelledStream s = long_texts(Output::sequence_classes, 3, 1);
  for (uint64_t draw = 0; draw < 50; ++draw)
    EXPECT_GE(labelled_batch(s, std::vector<int64_t>{0}, noise(0.9, 0, 0), 1, draw).ids.count(), 3);
}

TEST(Augmentation, SwapsAndMasks) {
  const LabelledStream s = long_texts(Output::sequence_classes, 1000, 1);
  Ids swapped = values(labelled_batch(s, std::vector<int64_t>{0}, noise(0, 0.2, 0), 1, 0).ids);
  EXPECT_FALSE(std::is_sorted(swapped.begin() + 1, swapped.end() - 1));
  std::sort(swapped.begin() + 1, swapped.end() - 1);
  EXPECT_EQ(swapped, values(labelled_batch(s, std::vector<int64_t>{0}).ids));  // no token is lost
  const Ids masked = values(labelled_batch(s, std::vector<int64_t>{0}, noise(0, 0, 0.3), 1, 0).ids);
  EXPECT_NEAR(static_cast<double>(std::count(masked.begin(), masked.end(), 3)), 300, 60);
}

TEST(Augmentation, OfTagsMasksAlone) {
  const LabelledStream s = long_texts(Output::token_classes, 100, 1);
  const Batch b = labelled_batch(s, std::vector<int64_t>{0}, noise(0.5, 0.5, 0.3), 1, 0);
  EXPECT_EQ(b.ids.count(), 102);
  const Ids ids = values(b.ids);
  for (size_t i = 1; i + 1 < ids.size(); ++i)
    EXPECT_TRUE(ids[i] == 3 || ids[i] == static_cast<int32_t>(9 + i));
  LabelledStream spans;
  spans.output = Output::span;
  EXPECT_THROW(labelled_batch(spans, {}, noise(0.5, 0, 0), 1, 0), Error);
}

}  // namespace
}  // namespace qkv::labelled_test

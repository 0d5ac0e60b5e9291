// Span corruption and denoising: the target restores the text.
#include "qkv/data/corruption.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "qkv/base/error.h"

namespace qkv::corruption_test {
namespace {

std::vector<int32_t> numbers(int64_t n) {
  std::vector<int32_t> out(n);
  std::iota(out.begin(), out.end(), 1000);
  return out;
}

SpanCorruption spans(int sentinels = 100) {
  SpanCorruption s;
  for (int i = 0; i < sentinels; ++i) s.sentinels.push_back(i);
  return s;
}

// The text that source and target give together.
std::vector<int32_t> restored(const Corrupted& c) {
  std::map<int32_t, std::vector<int32_t>> taken;
  int32_t sentinel = -1;
  for (const int32_t id : c.target) {
    if (id < 1000)
      taken[sentinel = id];
    else
      taken[sentinel].push_back(id);
  }
  std::vector<int32_t> out;
  for (const int32_t id : c.source) {
    if (id >= 1000)
      out.push_back(id);
    else
      out.insert(out.end(), taken[id].begin(), taken[id].end());
  }
  return out;
}

TEST(SpanCorruption, SourceAndTargetTellTheText) {
  for (int64_t n = 2; n < 200; ++n) {
    const auto text = numbers(n);
    const Corrupted c = corrupt_spans(text, spans(), {7, static_cast<uint64_t>(n), 1});
    EXPECT_EQ(restored(c), text) << n;
    EXPECT_GE(c.source.front(), 1000) << "the text begins with a token that stays";
    int64_t sentinels = 0, hidden = 0;
    for (size_t i = 0; i < c.source.size(); ++i) {
      if (c.source[i] >= 1000) continue;
      EXPECT_EQ(c.source[i], sentinels++) << "in their order";
      if (i > 0) {
        EXPECT_GE(c.source[i - 1], 1000) << "spans do not touch";
      }
    }
    for (const int32_t id : c.target) hidden += id >= 1000;
    const int64_t wanted = std::max<int64_t>(1, std::llround(0.15 * static_cast<double>(n)));
    EXPECT_EQ(hidden, wanted);
    EXPECT_EQ(sentinels, std::max<int64_t>(1, std::llround(static_cast<double>(wanted) / 3)));
  }
}

TEST(SpanCorruption, HasNoMoreSpansThanSentinels) {
  const auto text = numbers(500);
  const Corrupted c = corrupt_spans(text, spans(4), {1, 2, 3});
  EXPECT_EQ(restored(c), text);
  EXPECT_EQ(c.target.size(), 75u + 4);
}

TEST(SpanCorruption, OfOneTokenAndOfNone) {
  const Corrupted one = corrupt_spans(numbers(1), spans(), {1, 2, 3});
  EXPECT_EQ(one.source, std::vector<int32_t>{0});
  EXPECT_EQ(one.target, (std::vector<int32_t>{0, 1000}));
  EXPECT_EQ(corrupt_spans({}, spans(), {1, 2, 3}).target, std::vector<int32_t>{0});
  EXPECT_THROW(corrupt_spans(numbers(9), spans(0), {1, 2, 3}), Error);
}

TEST(SpanCorruption, IsAFunctionOfTheRandomStream) {
  const auto text = numbers(100);
  EXPECT_EQ(corrupt_spans(text, spans(), {1, 2, 3}).source, corrupt_spans(text, spans(), {1, 2, 3}).source);
  EXPECT_NE(corrupt_spans(text, spans(), {1, 2, 3}).source, corrupt_spans(text, spans(), {1, 3, 3}).source);
}

Denoising noise() {
  Denoising d;
  d.mask = 7;
  d.ends = std::vector<bool>(2000);
  return d;
}

TEST(Denoising, TargetIsTheText) {
  const auto text = numbers(300);
  const Corrupted c = add_noise(text, noise(), {1, 2, 3});
  EXPECT_EQ(c.target, text);
  EXPECT_LT(c.source.size(), text.size());
}

// In 200 texts of 300 tokens, spans cover a share of 0.3, with a deviation below 0.01.
TEST(Denoising, InfillsItsShare) {
  int64_t kept = 0, masks = 0, all = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const auto text = numbers(300);
    for (const int32_t id : add_noise(text, noise(), {1, i, 3}).source) (id == 7 ? masks : kept)++;
    all += 300;
  }
  EXPECT_NEAR(1 - static_cast<double>(kept) / static_cast<double>(all), 0.3, 0.03);
  // A span of 3 tokens on average, 0 included.
  EXPECT_NEAR(0.3 * static_cast<double>(all) / static_cast<double>(masks), 3, 0.3);
}

TEST(Denoising, DeletesItsShareAndKeepsTheOrder) {
  Denoising d = noise();
  d.infill = 0;
  d.deletion = 0.25;
  int64_t kept = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    const Corrupted c = add_noise(numbers(300), d, {1, i, 3});
    EXPECT_TRUE(std::is_sorted(c.source.begin(), c.source.end()));
    kept += std::ssize(c.source);
  }
  EXPECT_NEAR(static_cast<double>(kept) / 30000, 0.75, 0.015);
}

TEST(Denoising, SentencesAreWholeInAnotherOrder) {
  Denoising d = noise();
  d.infill = 0;
  for (int id = 1009; id < 1100; id += 10) d.ends[id] = true;  // ten sentences of ten tokens
  const Corrupted c = add_noise(numbers(100), d, {1, 2, 3});
  ASSERT_EQ(c.source.size(), 100u);
  EXPECT_NE(c.source, c.target);
  for (int s = 0; s < 10; ++s) {
    EXPECT_EQ(c.source[s * 10] % 10, 0);
    for (int i = 1; i < 10; ++i) EXPECT_EQ(c.source[s * 10 + i], c.source[s * 10] + i);
  }
  d.permute = false;
  EXPECT_EQ(add_noise(numbers(100), d, {1, 2, 3}).source, numbers(100));
}

// Every place between two tokens is drawn, and nothing is lost.
TEST(CutInTwo, PutsTheBeginningInTheSource) {
  std::set<size_t> lengths;
  for (uint64_t draw = 0; draw < 200; ++draw) {
    const Corrupted c = cut_in_two(numbers(5), {7, draw, 1});
    std::vector<int32_t> both = c.source;
    both.insert(both.end(), c.target.begin(), c.target.end());
    EXPECT_EQ(both, numbers(5));
    lengths.insert(c.source.size());
  }
  EXPECT_EQ(lengths, (std::set<size_t>{1, 2, 3, 4}));
  EXPECT_EQ(cut_in_two(numbers(1), {1, 2, 3}).source, numbers(1));
  EXPECT_TRUE(cut_in_two({}, {1, 2, 3}).target.empty());
}

}  // namespace
}  // namespace qkv::corruption_test

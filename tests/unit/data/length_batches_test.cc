// Batches filled by tokens; those of pairs are in pairs_test.cc.
#include "qkv/data/length_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "qkv/base/error.h"

namespace qkv::length_batches_test {
namespace {

std::vector<int64_t> lengths(int count) {
  std::vector<int64_t> out;
  for (int i = 0; i < count; ++i) out.push_back(1 + i * 7 % 23);
  return out;
}

TEST(LengthBatches, AnItemLongerThanABatchIsOne) {
  const std::vector<int64_t> l = {3, 50, 3, 60, 4};
  EXPECT_EQ(batches_by_length(l, 10), (std::vector<std::vector<int64_t>>{{0, 2, 4}, {1}, {3}}));
  EXPECT_EQ(batches_by_length(l, 1), (std::vector<std::vector<int64_t>>{{0}, {2}, {4}, {1}, {3}}));
  EXPECT_TRUE(batches_by_length({}, 10).empty());
  LengthBatches b(l, 10, 1);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < b.batches_per_epoch(); ++i)
    for (const int64_t item : b.items(static_cast<uint64_t>(i))) EXPECT_TRUE(seen.insert(item).second);
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_THROW(LengthBatches({}, 10, 1), Error);
}

TEST(LengthBatches, AnyOrderOfAskingGivesTheSame) {
  LengthBatches forwards(lengths(100), 60, 3), jumping(lengths(100), 60, 3);
  std::vector<std::vector<int64_t>> items;
  std::vector<uint64_t> epochs;
  for (uint64_t i = 0; i < 60; ++i) items.push_back(forwards.items(i)), epochs.push_back(forwards.epoch(i));
  EXPECT_EQ(epochs.front(), 0u);
  EXPECT_GE(epochs.back(), 2u);
  EXPECT_TRUE(std::is_sorted(epochs.begin(), epochs.end()));
  for (const uint64_t i : {59u, 0u, 30u, 29u, 58u, 1u}) {
    EXPECT_EQ(jumping.items(i), items[i]) << i;
    EXPECT_EQ(jumping.epoch(i), epochs[i]) << i;
  }
}

TEST(LengthBatches, AnEpochChangesWithItsItems) {
  LengthBatches b(lengths(100), 60, 3);
  std::set<int64_t> seen;
  uint64_t index = 0;
  while (b.epoch(index) == 0)
    for (const int64_t item : b.items(index++)) EXPECT_TRUE(seen.insert(item).second);
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(static_cast<int64_t>(index), b.batches_per_epoch());
}

TEST(LengthBatches, LongAndShortOnesAreMixedInAnEpoch) {
  LengthBatches b(lengths(2000), 60, 3);
  // Not from the shortest to the longest.
  const std::vector<int64_t> l = lengths(2000);
  int64_t falls = 0, previous = 0;
  for (int64_t i = 0; i < b.batches_per_epoch(); ++i) {
    const int64_t longest = l[b.items(static_cast<uint64_t>(i)).back()];
    falls += longest < previous;
    previous = longest;
  }
  EXPECT_GT(falls, b.batches_per_epoch() / 3);
}

TEST(Shuffle, IsAPermutationOfSeedAndEpoch) {
  std::vector<int64_t> a(100), b, c, d;
  std::iota(a.begin(), a.end(), 0);
  b = c = d = a;
  const std::vector<int64_t> ordered = a;
  shuffle(a, 1, 0);
  shuffle(b, 1, 0);
  shuffle(c, 2, 0);
  shuffle(d, 1, 1);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, ordered);
  EXPECT_NE(a, c);
  EXPECT_NE(a, d);
  EXPECT_TRUE(std::is_permutation(a.begin(), a.end(), ordered.begin()));
}

}  // namespace
}  // namespace qkv::length_batches_test

// chrF by hand.
#include "qkv/metrics/chrf.h"

#include <gtest/gtest.h>

#include "qkv/base/error.h"

namespace qkv::chrf_test {
namespace {

using Texts = std::vector<std::string>;

Chrf chrf(const Texts& hypotheses, const Texts& references) {
  return corpus_chrf(hypotheses, references);
}

double f2(double precision, double recall) {
  return 100 * 5 * precision * recall / (4 * precision + recall);
}

TEST(Chrf, OfOnePair) {
  // abcd against abce f: 1-grams 3 of 4 and 5, 2-grams 2 of 3 and 4, 3-grams 1 of 2 and 3, 4-grams 0 of 1
  // and 2. 5-grams are in the reference alone.
  const Chrf c = chrf({"ab cd"}, {"abce f"});
  EXPECT_EQ(c.counts[0].matches, 3);
  EXPECT_EQ(c.counts[1].hypothesis, 3);
  EXPECT_EQ(c.counts[1].reference, 4);
  EXPECT_EQ(c.counts[4].hypothesis, 0);
  EXPECT_EQ(c.counts[4].reference, 1);
  EXPECT_NEAR(c.score, f2((3.0 / 4 + 2.0 / 3 + 1.0 / 2) / 4, (3.0 / 5 + 2.0 / 4 + 1.0 / 3) / 4), 1e-9);
}

TEST(Chrf, CountsAreClippedAndSummed) {
  const Chrf c = chrf({"aaa", "b"}, {"a", "bc"});
  // Lengths that a reference lacks do not count against its hypothesis: of aaa only the 1-grams do.
  EXPECT_EQ(c.counts[0].hypothesis, 4);
  EXPECT_EQ(c.counts[0].matches, 2);
  EXPECT_EQ(c.counts[1].hypothesis, 0);
  EXPECT_NEAR(c.score, f2(2.0 / 4, 2.0 / 3), 1e-9);
}

TEST(Chrf, CharactersAreUnicodes) {
  EXPECT_NEAR(chrf({"\xC3\xA9"}, {"\xC3\xA8"}).score, 0, 1e-12);  // a byte in common is nothing
  EXPECT_NEAR(chrf({"\xC3\xA9\xE3\x80\x80t"}, {"\xC3\xA9 t\n"}).score, 100, 1e-9);
  EXPECT_NEAR(chrf({"A"}, {"a"}).score, 0, 1e-12);
}

TEST(Chrf, Extremes) {
  EXPECT_NEAR(chrf({"the same words"}, {"the same words"}).score, 100, 1e-9);
  EXPECT_EQ(chrf({""}, {"a"}).score, 0);
  EXPECT_EQ(chrf({"a"}, {""}).score, 0);
  EXPECT_EQ(chrf({}, {}).score, 0);
  EXPECT_THROW(chrf({"a"}, {}), Error);
}

}  // namespace
}  // namespace qkv::chrf_test

// BLEU by hand.
#include "qkv/text/bleu.h"

#include <gtest/gtest.h>

#include <cmath>

namespace qkv::text {
namespace {

using Words = std::vector<std::string>;

Bleu bleu(const Words& hypotheses, const Words& references) {
  return corpus_bleu(hypotheses, references);
}

TEST(Bleu, WordsOfMteval13a) {
  EXPECT_EQ(
      words_13a("Hello, world! It's 3.5 of 1,000 (20-30)."),
      (Words{"Hello", ",", "world", "!", "It's", "3.5", "of", "1,000", "(", "20", "-", "30", ")", "."}));
  EXPECT_EQ(words_13a("e.g. a-b &quot;c&amp;d&quot; x..y"),
            (Words{"e", ".", "g", ".", "a-b", "\"", "c", "&", "d", "\"", "x", ".", ".", "y"}));
  EXPECT_EQ(words_13a(" für\u00a0die Straße, "), (Words{"für", "die", "Straße", ","}));
  EXPECT_EQ(words_13a(""), Words{});
}

TEST(Bleu, OfOnePair) {
  const Bleu b = bleu({"a b c d e"}, {"a b c d f g"});
  EXPECT_NEAR(b.precisions[0], 80, 1e-9);
  EXPECT_NEAR(b.precisions[3], 50, 1e-9);
  EXPECT_NEAR(b.brevity_penalty, std::exp(-0.2), 1e-12);
  EXPECT_NEAR(b.score, 100 * std::exp(-0.2) * std::pow(0.8 * 0.75 * 2 / 3 * 0.5, 0.25), 1e-9);
}

// Counts are clipped by the reference's; each order without a match halves what is added next.
TEST(Bleu, ClipsAndSmooths) {
  const Bleu b = bleu({"the the the the the the the"}, {"the cat is on the mat"});
  EXPECT_NEAR(b.score, std::pow(100 * 2.0 / 7 * 100 / 12 * 100 / 20 * 100 / 32, 0.25), 1e-9);
}

// A corpus's counts are summed before they are divided.
TEST(Bleu, OfACorpus) {
  const Bleu b = bleu({"a b c d", "x y"}, {"a b c d", "x z"});
  EXPECT_NEAR(b.precisions[0], 100 * 5.0 / 6, 1e-9);
  EXPECT_NEAR(b.precisions[1], 100 * 3.0 / 4, 1e-9);
  EXPECT_NEAR(b.score, 100 * std::pow(5.0 / 6 * 3 / 4, 0.25), 1e-9);
  EXPECT_EQ(b.hypothesis_length, 6);
}

TEST(Bleu, Extremes) {
  EXPECT_NEAR(bleu({"a b c d e"}, {"a b c d e"}).score, 100, 1e-9);
  EXPECT_EQ(bleu({"v w x y z"}, {"a b c d e"}).score, 0);
  EXPECT_EQ(bleu({""}, {"a b c d e"}).score, 0);
  EXPECT_EQ(bleu({"a b c"}, {"a b c"}).score, 0);  // no 4-gram at all
  EXPECT_EQ(bleu({}, {}).score, 0);
}

}  // namespace
}  // namespace qkv::text

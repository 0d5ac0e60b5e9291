// ROUGE-L by hand.
#include "qkv/metrics/rouge.h"

#include <gtest/gtest.h>

#include "qkv/base/error.h"

namespace qkv::rouge_test {
namespace {

using Texts = std::vector<std::string>;

TEST(RougeL, WordsAreLettersAndDigitsOfAscii) {
  EXPECT_EQ(rouge_words("It's 3.5 A_b\xC3\xA9"
                        "c \xE4\xBD\xA0"),
            (Texts{"it", "s", "3", "5", "a", "b", "c"}));
  EXPECT_EQ(rouge_words("\xE2\x84\xAA"), (Texts{"k"}));  // the Kelvin sign
  EXPECT_EQ(rouge_words(" .-\xFF"), Texts{});
}

TEST(RougeL, LongestCommonSubsequence) {
  // "police kill the gunman" and Lin's two candidates: 3 words in order, and 2.
  const RougeL first = rouge_l("police killed the gunman", "police kill the gunman");
  EXPECT_NEAR(first.f1, 0.75, 1e-12);
  const RougeL second = rouge_l("the gunman police killed", "police kill the gunman");
  EXPECT_NEAR(second.f1, 0.5, 1e-12);
  const RougeL uneven = rouge_l("a b x c", "a c b");
  EXPECT_NEAR(uneven.precision, 2.0 / 4, 1e-12);
  EXPECT_NEAR(uneven.recall, 2.0 / 3, 1e-12);
  EXPECT_NEAR(uneven.f1, 4.0 / 7, 1e-12);
}

TEST(RougeL, MeansAndExtremes) {
  const Texts hypotheses = {"a b", "x"}, references = {"A, B!", "y"};
  EXPECT_NEAR(corpus_rouge_l(hypotheses, references).f1, 0.5, 1e-12);
  EXPECT_EQ(rouge_l("", "a").f1, 0);
  EXPECT_EQ(rouge_l("a", "...").f1, 0);
  EXPECT_EQ(corpus_rouge_l({}, {}).f1, 0);
  EXPECT_THROW(corpus_rouge_l(hypotheses, {}), Error);
}

TEST(RougeL, TextsWithoutWordsAreCounted) {
  EXPECT_EQ(count_with_rouge_words(Texts{"\xE6\x9D\xB1\xE4\xBA\xAC", "", "\xE6\x9D\xB1 3", "a"}), 2);
  EXPECT_EQ(count_with_rouge_words(Texts{"\xE6\x9D\xB1"}), 0);
}

TEST(RougeL, AppliesWhereItSeesMostLetters) {
  EXPECT_TRUE(rouge_applies(Texts{"eins zwei", "caf\xC3\xA9"}));
  EXPECT_TRUE(rouge_applies(Texts{"Tokyo", "\xE6\x9D\xB1\xE4\xBA\xAC"}));
  // One digit, or one name, says nothing about texts of another script.
  EXPECT_FALSE(rouge_applies(Texts{"3\xE6\x99\x82\xE3\x81\xA7\xE3\x81\x99"}));
  EXPECT_FALSE(rouge_applies(Texts{"..."}));
  EXPECT_FALSE(rouge_applies(Texts{}));
}

}  // namespace
}  // namespace qkv::rouge_test

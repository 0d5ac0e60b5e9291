#include "qkv/text/gpt2_pattern.h"

#include <gtest/gtest.h>

#include <random>

#include "qkv/base/error.h"
#include "qkv/text/regex.h"
#include "qkv/text/unicode.h"

namespace qkv::text::gpt2_pattern_test {
namespace {

std::vector<Range> match_by_hand(std::string_view text) {
  std::vector<Range> matches;
  for (size_t i = 0; i < text.size();) {
    const size_t end = gpt2_match_end(text, i);
    matches.push_back({i, end});
    i = end;
  }
  return matches;
}

// Mostly what the pattern treats specially; now and then any assigned character.
std::string random_text(std::mt19937& rng, const std::vector<int32_t>& assigned) {
  static constexpr std::string_view kSpecial[] = {"'",
                                                  "s",
                                                  "t",
                                                  "re",
                                                  "ve",
                                                  "m",
                                                  "ll",
                                                  "d",
                                                  "l",
                                                  "r",
                                                  "v",
                                                  " ",
                                                  " ",
                                                  " ",
                                                  "\n",
                                                  "\t",
                                                  "\r",
                                                  "7",
                                                  "x",
                                                  "E",
                                                  ".",
                                                  "-",
                                                  "\xC2\xA0",
                                                  "\xC2\x85",
                                                  "\xE3\x80\x80",
                                                  "\xE1\xA0\x8E",
                                                  "\x1C"};
  std::string text;
  for (size_t n = rng() % 16; n > 0; --n) {
    if (rng() % 4 == 0) {
      append_utf8(text, assigned[rng() % assigned.size()]);
    } else {
      text += kSpecial[rng() % std::size(kSpecial)];
    }
  }
  return text;
}

TEST(Gpt2Pattern, MatcherEqualsTheRegularExpression) {
  const Regex regex{std::string(kGpt2Pattern)}, unassigned(R"(\p{Cn})");
  std::vector<int32_t> assigned;  // in the regular expressions' version of Unicode
  for (int32_t c = 0; c <= 0x10FFFF; ++c) {
    std::string s;
    if (c < 0xD800 || c > 0xDFFF) append_utf8(s, c);
    if (!s.empty() && unassigned.find_all(s).empty() && (c < 0xE000 || c > 0xF8FF) && c < 0xF0000)
      assigned.push_back(c);
  }
  ASSERT_GT(assigned.size(), 100'000u);
  for (const int32_t c : assigned) {  // each alone, then in company
    std::string s = "a ";
    append_utf8(s, c);
    s += " 1";
    ASSERT_EQ(match_by_hand(s), regex.find_all(s)) << "U+" << std::hex << c;
  }
  std::mt19937 rng(42);
  for (int i = 0; i < 200'000; ++i) {
    const std::string text = random_text(rng, assigned);
    ASSERT_EQ(match_by_hand(text), regex.find_all(text)) << "'" << text << "'";
  }
}

TEST(Gpt2Pattern, InvalidBytesAreCovered) {
  const std::string text = "a\xFF\xFE b\x80";
  size_t covered = 0;
  for (const Range match : match_by_hand(text)) {
    EXPECT_EQ(match.begin, covered);
    covered = match.end;
  }
  EXPECT_EQ(covered, text.size());
}

TEST(Regex, HostilePatternsEndInAnError) {
  const std::string subject(64, 'a');
  EXPECT_THROW(Regex("(a+)+b|(a*)*c").find_all(subject + "!"), Error);
  EXPECT_THROW(Regex("(("), Error);
  EXPECT_THROW(Regex("\\C"), Error);
  EXPECT_THROW(Regex(std::string(500, '(') + std::string(500, ')')), Error);
  EXPECT_THROW(Regex(std::string(30'000, 'a')), Error);
  EXPECT_THROW(Regex("\xFF"), Error);
}

TEST(Regex, SpaceAndWordAreUnicodes) {
  EXPECT_EQ(Regex("\\s").find_all("\xE1\xA0\x8E").size(),
            0u);  // U+180E has not been White_Space since Unicode 6.3
  EXPECT_EQ(Regex("\\w+").find_all("\xE0\xA4\xA8\xE0\xA4\xBF").size(), 1u);  // a letter and its vowel sign
  EXPECT_EQ(Regex("[^\\s\\w]").find_all("a-\n").size(), 1u);
}

TEST(Regex, DotallIsSpeltAsInOniguruma) {
  EXPECT_EQ(Regex("(?m:a.b)").find_all("a\nb").size(), 1u);
}

TEST(Regex, WhatOnigurumaReadsDifferentlyIsRefusedOrTranslated) {
  EXPECT_THROW(Regex("[a-z&&[^aeiou]]"), Error);
  EXPECT_THROW(Regex("[a[bc]]"), Error);
  EXPECT_THROW(Regex("\\p{N}{1,3}+"), Error);
  EXPECT_EQ(Regex("[[:digit:]\\s]+").find_all("1 2a").size(), 1u);
  EXPECT_EQ(Regex("[]a\\[]+").find_all("a][").size(), 1u);
  EXPECT_EQ(Regex("\\x{85}+\\p{L}+").find_all("\xC2\x85\xC2\x85q").size(), 1u);
  EXPECT_EQ(Regex("(?i:'s|'t|'re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
                .find_all("It'S 12345 ok!\n\n  x")
                .size(),
            9u);
}

TEST(Regex, EmptyMatchesAdvance) {
  EXPECT_EQ(Regex("x*").find_all("\xC3\xA9y"), (std::vector<Range>{{0, 0}, {2, 2}, {3, 3}}));
}

TEST(Regex, BytesThatAreNotUtf8MatchNothing) {
  EXPECT_EQ(Regex("[\\s\\S]")
                .find_all("a\xFF"
                          "b"),
            (std::vector<Range>{{0, 1}, {2, 3}}));
}

}  // namespace
}  // namespace qkv::text::gpt2_pattern_test

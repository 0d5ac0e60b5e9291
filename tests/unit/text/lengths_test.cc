// Texts cut to what is allowed, and batches made equally long.
#include "qkv/text/lengths.h"

#include <gtest/gtest.h>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/tokenizer.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/text/tokenizer_testing.h"

namespace qkv::text::lengths_test {
namespace {

using Strings = std::vector<std::string>;
using Strategy = Truncation::Strategy;
using nlohmann::json;
using testing::expect_error;
using testing::tokens_of;

class LengthsTest : public ::testing::Test {
 protected:
  Strings cut(const Truncation& t, std::string_view first, std::optional<std::string_view> second,
              bool expected = true, bool special = true) {
    bool any = !expected;
    const Encoding e = tokenizer_.encode_within(t, first, second, special, &any);
    EXPECT_EQ(any, expected);
    EXPECT_EQ(e.offsets.size(), e.size());
    EXPECT_EQ(e.type_ids.size(), e.size());
    return tokens_of(tokenizer_, e);
  }
  Strings cut(size_t most, std::string_view first, std::optional<std::string_view> second = std::nullopt,
              bool expected = true) {
    return cut(Truncation{.max_length = most}, first, second, expected);
  }
  Tokenizer with(const json& truncation, const json& padding) const {
    json document = json::parse(tokenizer_.to_json());
    document["truncation"] = truncation;
    document["padding"] = padding;
    return Tokenizer::from_json(document.dump());
  }
  const Tokenizer tokenizer_ = testing::word_pieces({"a b c d e f g h"});
};

TEST_F(LengthsTest, OneText) {
  const Strings whole = {"[CLS]", "a", "b", "c", "d", "[SEP]"};
  EXPECT_EQ(cut(7, "a b c d", std::nullopt, false), whole);
  EXPECT_EQ(cut(6, "a b c d", std::nullopt, false), whole);
  EXPECT_EQ(cut(5, "a b c d"), (Strings{"[CLS]", "a", "b", "c", "[SEP]"}));
  EXPECT_EQ(cut(2, "a b c d"), (Strings{"[CLS]", "[SEP]"}));
  expect_error([&] { cut(1, "a b c d"); }, {"2 special tokens", "1"});
  EXPECT_EQ(cut({.max_length = 4, .from_left = true}, "a b c d", std::nullopt),
            (Strings{"[CLS]", "c", "d", "[SEP]"}));
  EXPECT_EQ(cut({.max_length = 3}, "a b c d", std::nullopt, true, false), (Strings{"a", "b", "c"}));
  EXPECT_EQ(cut({.max_length = 0}, "a b c d", std::nullopt, true, false), Strings{});
}

TEST_F(LengthsTest, TheLongerOfAPair) {
  const auto pair = [&](size_t most) { return cut(most, "a b c d e", "f g"); };
  EXPECT_EQ(pair(9), (Strings{"[CLS]", "a", "b", "c", "d", "[SEP]", "f", "g", "[SEP]"}));
  EXPECT_EQ(pair(7), (Strings{"[CLS]", "a", "b", "[SEP]", "f", "g", "[SEP]"}));
  EXPECT_EQ(pair(6), (Strings{"[CLS]", "a", "b", "[SEP]", "f", "[SEP]"}));  // the first keeps one more
  EXPECT_EQ(pair(5), (Strings{"[CLS]", "a", "[SEP]", "f", "[SEP]"}));
  EXPECT_EQ(pair(3), (Strings{"[CLS]", "[SEP]", "[SEP]"}));
  expect_error([&] { pair(2); }, {"3 special tokens"});
  EXPECT_EQ(cut(6, "a", "f g h d"), (Strings{"[CLS]", "a", "[SEP]", "f", "g", "[SEP]"}));
  EXPECT_EQ(cut(6, "a b", "f g h d e"), (Strings{"[CLS]", "a", "b", "[SEP]", "f", "[SEP]"}));
  EXPECT_EQ(cut(4, "a b c d e f", "f g h d e"), (Strings{"[CLS]", "a", "[SEP]", "[SEP]"}));
  EXPECT_EQ(cut(6, "a b", "f g"), (Strings{"[CLS]", "a", "b", "[SEP]", "f", "[SEP]"}));
  EXPECT_EQ(cut({.max_length = 6, .from_left = true}, "a b c", "f g h"),
            (Strings{"[CLS]", "b", "c", "[SEP]", "h", "[SEP]"}));
}

TEST_F(LengthsTest, AnOddTokenIsTheLongersInTheLibrary) {
  const auto pair = [&](size_t most, std::string_view first, std::string_view second) {
    return cut({.max_length = most, .odd_to_longer = true}, first, second);
  };
  EXPECT_EQ(pair(6, "a b c d", "f g"), (Strings{"[CLS]", "a", "b", "[SEP]", "f", "[SEP]"}));
  EXPECT_EQ(pair(6, "a b", "f g h d"), (Strings{"[CLS]", "a", "[SEP]", "f", "g", "[SEP]"}));
  EXPECT_EQ(pair(6, "a b", "f g"), (Strings{"[CLS]", "a", "[SEP]", "f", "g", "[SEP]"}));
  EXPECT_EQ(pair(4, "a b c d e f", "f g h d e"), (Strings{"[CLS]", "[SEP]", "f", "[SEP]"}));  // both beyond 4
}

TEST_F(LengthsTest, OneTextOfAPair) {
  const Truncation first{.max_length = 7, .strategy = Strategy::kOnlyFirst},
      second{.max_length = 7, .strategy = Strategy::kOnlySecond};
  EXPECT_EQ(cut(first, "a b c", "d e f"), (Strings{"[CLS]", "a", "[SEP]", "d", "e", "f", "[SEP]"}));
  EXPECT_EQ(cut(second, "a b c", "d e f"), (Strings{"[CLS]", "a", "b", "c", "[SEP]", "d", "[SEP]"}));
  EXPECT_EQ(cut(first, "a b c d e f", std::nullopt), (Strings{"[CLS]", "a", "b", "c", "d", "e", "[SEP]"}));
  EXPECT_EQ(cut({.max_length = 2, .strategy = Strategy::kOnlySecond}, "a b", std::nullopt),
            (Strings{"[CLS]", "[SEP]"}));
  expect_error([&] { cut(first, "a b", "c d e f"); }, {"first text", "2 tokens", "too few for 2"});
  expect_error([&] { cut(second, "a b c d e f", std::nullopt); }, {"second text"});
}

TEST_F(LengthsTest, KeepsWhatTheTokensStandFor) {
  const Encoding e = tokenizer_.encode_within({.max_length = 7}, "a b", "f g h");
  EXPECT_EQ(e.type_ids, (std::vector<TokenId>{0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(e.offsets[5].begin, 2u);
  EXPECT_EQ(e.offsets[5].end, 3u);
}

// Windows that overlap, of one text and of two, as Hugging Face's library lists them.
TEST_F(LengthsTest, WindowsHoldAllOfAText) {
  const auto windows = [&](const Truncation& t, std::string_view first,
                           std::optional<std::string_view> second = std::nullopt, bool special = true) {
    std::vector<std::string> out;
    for (const Encoding& e : tokenizer_.encode_windows(t, first, second, special)) {
      std::string line;
      for (const std::string& token : tokens_of(tokenizer_, e))
        line += token == "[CLS]" ? "" : token == "[SEP]" ? "|" : token;
      out.push_back(line);
    }
    return out;
  };
  EXPECT_EQ(windows({.max_length = 5}, "a b c"), Strings{"abc|"});
  EXPECT_EQ(windows({.max_length = 5}, "a b c d e f g"), (Strings{"abc|", "def|", "g|"}));
  EXPECT_EQ(windows({.max_length = 5, .stride = 1}, "a b c d e f g"), (Strings{"abc|", "cde|", "efg|"}));
  EXPECT_EQ(windows({.max_length = 5, .stride = 2}, "a b c d e"), (Strings{"abc|", "bcd|", "cde|"}));
  EXPECT_EQ(windows({.max_length = 5, .from_left = true, .stride = 1}, "a b c d e f g h"),
            (Strings{"fgh|", "def|", "bcd|", "ab|"}));
  EXPECT_EQ(windows({.max_length = 2}, "a b"), (Strings{"|", "ab|"}));
  EXPECT_EQ(windows({.max_length = 2}, "a b c", std::nullopt, false), (Strings{"ab", "c"}));
  EXPECT_EQ(windows({.max_length = 8, .strategy = Strategy::kOnlySecond, .stride = 1}, "a b", "c d e f g"),
            (Strings{"ab|cde|", "ab|efg|"}));
  EXPECT_EQ(windows({.max_length = 8, .strategy = Strategy::kOnlyFirst, .stride = 1}, "c d e f g", "a b"),
            (Strings{"cde|ab|", "efg|ab|"}));
  EXPECT_EQ(windows({.max_length = 7}, "a b c", "d e f"), (Strings{"ab|de|", "c|de|", "c|f|", "ab|f|"}));
  for (const Encoding& e : tokenizer_.encode_windows({.max_length = 6}, "a b", "c d e f"))
    EXPECT_EQ(e.type_ids.size(), e.size());
  expect_error([&] { windows({.max_length = 5, .stride = 3}, "a b c d"); }, {"3 tokens", "overlap by 3"});
}

// [UNK] is special, and still a token of the text.
TEST_F(LengthsTest, UnknownWordsAreCutLikeOthers) {
  EXPECT_EQ(cut(4, "a ! ? ! ? !"), (Strings{"[CLS]", "a", "[UNK]", "[SEP]"}));
  EXPECT_EQ(cut(5, "[MASK] [MASK] [MASK]", "b"), (Strings{"[CLS]", "[MASK]", "[SEP]", "b", "[SEP]"}));
}

TEST_F(LengthsTest, BatchesAreFilledUp) {
  const auto padded = [&](const Padding& p) {
    std::vector<Encoding> batch{tokenizer_.encode("a b c"), tokenizer_.encode("d")};
    const size_t length = padded_length(batch, p);
    pad(batch[1], length, p);
    return std::pair(length, batch[1].ids);
  };
  const TokenId cls = *tokenizer_.token_to_id("[CLS]"), sep = *tokenizer_.token_to_id("[SEP]"),
                d = *tokenizer_.token_to_id("d");
  EXPECT_EQ(padded({}), std::pair(size_t{5}, std::vector<TokenId>{cls, d, sep, 0, 0}));
  EXPECT_EQ(padded({.on_left = true, .id = 7}),
            std::pair(size_t{5}, std::vector<TokenId>{7, 7, cls, d, sep}));
  EXPECT_EQ(padded({.multiple_of = 4}),
            std::pair(size_t{8}, std::vector<TokenId>{cls, d, sep, 0, 0, 0, 0, 0}));
  EXPECT_EQ(padded({.length = 4}), std::pair(size_t{4}, std::vector<TokenId>{cls, d, sep, 0}));
  EXPECT_EQ(padded({.length = 2}), std::pair(size_t{2}, std::vector<TokenId>{cls, d, sep}));
}

TEST_F(LengthsTest, TheFileSaysHow) {
  const json truncation = {
      {"direction", "Left"}, {"max_length", 4}, {"strategy", "OnlySecond"}, {"stride", 1}};
  const json padding = {{"strategy", {{"Fixed", 9}}}, {"direction", "Left"},
                        {"pad_to_multiple_of", 4},    {"pad_id", 3},
                        {"pad_type_id", 1},           {"pad_token", "c"}};
  const Tokenizer t = with(truncation, padding);
  EXPECT_EQ(t.truncation()->max_length, 4u);
  EXPECT_EQ(t.truncation()->strategy, Strategy::kOnlySecond);
  EXPECT_TRUE(t.truncation()->from_left);
  EXPECT_EQ(t.padding()->length, 9u);
  EXPECT_EQ(t.padding()->type_id, 1);
  const json saved = json::parse(t.to_json());
  EXPECT_EQ(saved["truncation"], truncation);
  EXPECT_EQ(saved["padding"], padding);
  EXPECT_EQ(t.encode("a b c d").size(), 6u);  // left to the caller
  const Tokenizer usual = with({{"max_length", 4}}, {{"strategy", "BatchLongest"}});
  EXPECT_EQ(usual.truncation()->strategy, Strategy::kLongestFirst);
  EXPECT_FALSE(usual.padding()->length || usual.padding()->on_left);
  EXPECT_FALSE(with(nullptr, nullptr).truncation() || with(nullptr, nullptr).padding());
}

TEST_F(LengthsTest, OddFilesAreRefused) {
  expect_error([&] { with({{"strategy", "OnlyFirst"}}, nullptr); }, {"truncation", "max_length"});
  expect_error(
      [&] {
        with({{"max_length", 4}, {"strategy", "Shortest"}}, nullptr);
      },
      {"truncation", "strategy", "LongestFirst"});
  expect_error([&] { with({{"max_length", 4}, {"direction", "Up"}}, nullptr); }, {"direction", "Left"});
  expect_error([&] { with({{"max_length", -1}}, nullptr); }, {"max_length"});
  expect_error([&] { with(nullptr, {{"strategy", {{"Fixed", -1}}}}); }, {"padding", "Fixed"});
  const Tokenizer large = with({{"max_length", int64_t{1} << 40}}, {{"strategy", {{"Fixed", 1 << 30}}}});
  EXPECT_EQ(large.encode_within(*large.truncation(), "a b").size(), 4u);  // no limit, in other words
  expect_error([&] { padded_length({}, *large.padding()); }, {"padding", "1073741824", "1048576"});
  expect_error([&] { with(nullptr, {{"strategy", "Widest"}}); }, {"strategy", "BatchLongest"});
  expect_error([&] { with(nullptr, {{"pad_id", "x"}}); }, {"pad_id"});
}

}  // namespace
}  // namespace qkv::text::lengths_test

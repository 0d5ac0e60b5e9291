// Special tokens around texts, and texts cut to what a model reads.
#include "qkv/text/template.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"
#include "tests/unit/tokenizer_testing.h"

namespace qkv::text {
namespace {

using Strings = std::vector<std::string>;
using testing::expect_error;
using testing::tokens_of;

TEST(Template, IsPutAroundTextsAndPairs) {
  TrainerOptions options;
  options.special_tokens = {"<unk>", "<s>", "</s>"};
  const std::vector<std::string_view> texts = {"abc"};
  const Tokenizer bare = train_characters(texts, options), t = with_template(bare, "<s>", "</s>");
  EXPECT_EQ(tokens_of(bare, bare.encode("ab")), (Strings{"a", "b"}));
  EXPECT_EQ(tokens_of(t, t.encode("ab")), (Strings{"<s>", "a", "b", "</s>"}));
  EXPECT_EQ(tokens_of(t, t.encode("ab", false)), (Strings{"a", "b"}));
  const Encoding pair = t.encode_pair("ab", "c");
  EXPECT_EQ(tokens_of(t, pair), (Strings{"<s>", "a", "b", "</s>", "c", "</s>"}));
  EXPECT_EQ(pair.type_ids, (std::vector<TokenId>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(Tokenizer::from_json(t.to_json()).encode("ab").ids, t.encode("ab").ids);
  expect_error([&] { with_template(bare, "<s>", "[SEP]"); }, {"[SEP]"});
}

class TruncateTest : public ::testing::Test {
 protected:
  Strings cut(Encoding e, size_t most, bool expected = true) {
    EXPECT_EQ(truncate(tokenizer_, e, most), expected);
    EXPECT_EQ(e.offsets.size(), e.size());
    EXPECT_EQ(e.type_ids.size(), e.size());
    return tokens_of(tokenizer_, e);
  }
  const Tokenizer tokenizer_ = testing::word_pieces({"a b c d e f g h"});
};

TEST_F(TruncateTest, OneText) {
  const Encoding e = tokenizer_.encode("a b c d");
  const Strings whole = {"[CLS]", "a", "b", "c", "d", "[SEP]"};
  EXPECT_EQ(cut(e, 7, false), whole);
  EXPECT_EQ(cut(e, 6, false), whole);
  EXPECT_EQ(cut(e, 5), (Strings{"[CLS]", "a", "b", "c", "[SEP]"}));
  EXPECT_EQ(cut(e, 2), (Strings{"[CLS]", "[SEP]"}));
  expect_error([&] { cut(e, 1); }, {"2 special tokens", "1"});
}

TEST_F(TruncateTest, TheLongerOfAPair) {
  const Encoding e = tokenizer_.encode_pair("a b c d e", "f g");
  EXPECT_EQ(cut(e, 9), (Strings{"[CLS]", "a", "b", "c", "d", "[SEP]", "f", "g", "[SEP]"}));
  EXPECT_EQ(cut(e, 7), (Strings{"[CLS]", "a", "b", "[SEP]", "f", "g", "[SEP]"}));
  EXPECT_EQ(cut(e, 6), (Strings{"[CLS]", "a", "[SEP]", "f", "g", "[SEP]"}));  // of equals the first
  EXPECT_EQ(cut(e, 5), (Strings{"[CLS]", "a", "[SEP]", "f", "[SEP]"}));
  EXPECT_EQ(cut(e, 3), (Strings{"[CLS]", "[SEP]", "[SEP]"}));
  expect_error([&] { cut(e, 2); }, {"3 special tokens"});
  EXPECT_EQ(cut(tokenizer_.encode_pair("a", "f g h d"), 6),
            (Strings{"[CLS]", "a", "[SEP]", "f", "g", "[SEP]"}));
}

TEST_F(TruncateTest, KeepsWhatTheTokensStandFor) {
  Encoding e = tokenizer_.encode_pair("a b", "f g h");
  ASSERT_TRUE(truncate(tokenizer_, e, 6));
  EXPECT_EQ(e.type_ids, (std::vector<TokenId>{0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(e.offsets[4].begin, 2u);
  EXPECT_EQ(e.offsets[4].end, 3u);
}

// [UNK] is special, and still a token of the text.
TEST_F(TruncateTest, UnknownWordsAreCutLikeOthers) {
  EXPECT_EQ(cut(tokenizer_.encode("a ! ? ! ? !"), 4), (Strings{"[CLS]", "a", "[UNK]", "[SEP]"}));
  EXPECT_EQ(cut(tokenizer_.encode_pair("[MASK] [MASK] [MASK]", "b"), 5),
            (Strings{"[CLS]", "[MASK]", "[SEP]", "b", "[SEP]"}));
}

}  // namespace
}  // namespace qkv::text

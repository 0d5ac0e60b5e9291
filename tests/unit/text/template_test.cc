// Special tokens around texts.
#include "qkv/text/template.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"
#include "tests/unit/text/tokenizer_testing.h"

namespace qkv::text::template_test {
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

}  // namespace
}  // namespace qkv::text::template_test

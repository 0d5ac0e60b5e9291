#include "qkv/train/run/new_tokens.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "qkv/text/tokenizer.h"
#include "qkv/text/trainer.h"

namespace qkv::new_tokens_test {
namespace {

TEST(NewTokens, RowsAreTheMeanOfTheKnownOnes) {
  // Row 2 is padding, which a new token takes; rows 3 and 4 are new.
  const Tensor before = Tensor::of<float>({3, 2}, std::vector<float>{1, 10, 3, 10, 99, 99});
  const NewTokens added{.known = 2, .all = 5, .seed = 7};
  const Tensor after = added.rows(before, {5, 2});
  const auto v = after.values<float>();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(v[i], before.values<float>()[i]);
  for (int row = 2; row < 5; ++row) {
    EXPECT_NEAR(v[2 * row], 2, 0.6);  // deviation 1, a tenth of it
    EXPECT_NE(v[2 * row], 2);
    EXPECT_EQ(v[2 * row + 1], 10);  // no deviation
  }
  EXPECT_NE(v[4], v[6]);
  const Tensor again = added.rows(before, {5, 2});
  EXPECT_TRUE(std::equal(v.begin(), v.end(), again.values<float>().begin()));
  // Padding that no token takes stays.
  const Tensor padded = NewTokens{.known = 1, .all = 2, .seed = 7}.rows(before, {3, 2});
  EXPECT_EQ(padded.values<float>()[4], 99);
}

// Every table with a row for each token grows.
TEST(NewTokens, AreRowsOfEachTable) {
  for (const char* name : {"embedding.token", "embedding.layers", "unembedding.weight"}) {
    Parameter before, after;
    before.name = after.name = name;
    before.shape = {3, 4};
    after.shape = {5, 4};
    EXPECT_TRUE(is_of_vocabulary(after, before)) << name;
    after.name = "embedding.position";
    EXPECT_FALSE(is_of_vocabulary(after, before));
  }
}

TEST(NewTokens, OfATokenizer) {
  const std::vector<std::string_view> texts = {"the quick brown fox", "jumps over the lazy dog"};
  text::TrainerOptions options;
  options.vocab_size = 300;
  for (const text::Tokenizer& t :
       {text::train_byte_level_bpe(texts, options),
        text::train_sentencepiece(texts, options, text::SentencePieceKind::kBpe)}) {
    const size_t before = t.vocab_size();
    const text::Tokenizer more = t.with_special_tokens({"<|a|>", "<|b|>", "<|a|>"});
    EXPECT_EQ(more.vocab_size(), before + 2);
    EXPECT_EQ(more.token_to_id("<|a|>"), static_cast<text::TokenId>(before));
    EXPECT_EQ(more.token_to_id("<|b|>"), static_cast<text::TokenId>(before + 1));
    EXPECT_TRUE(more.is_special(*more.token_to_id("<|b|>")));
    EXPECT_EQ(more.encode("the fox", false).ids, t.encode("the fox", false).ids);
    const auto ids = more.encode("the<|b|>fox", false).ids;
    EXPECT_NE(std::ranges::find(ids, *more.token_to_id("<|b|>")), ids.end());
    EXPECT_EQ(more.with_special_tokens({"<|a|>"}).vocab_size(), before + 2);
    // Saved and loaded it is the same.
    const std::string dir = fmt::format("{}/qkv_new_tokens_{}", ::testing::TempDir(), before);
    std::filesystem::remove_all(dir);
    more.save(dir);
    const text::Tokenizer again = text::Tokenizer::load(dir);
    EXPECT_EQ(again.encode("the<|b|>fox<|a|>", false).ids, more.encode("the<|b|>fox<|a|>", false).ids);
    EXPECT_EQ(again.vocab_size(), before + 2);
  }
}

}  // namespace
}  // namespace qkv::new_tokens_test

#include "qkv/data/token_file.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "qkv/train/corpora/corpus.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"
#include "tests/unit/text/tokenizer_testing.h"

namespace qkv::token_file_test {
namespace {

using testing::ScratchDir;

TEST(TokenFile, HoldsWhatAStreamHolds) {
  const ScratchDir dir;
  TokenStream want;
  TokenStream got;
  {
    TokenFile file(dir.path());
    for (int32_t d = 0; d < 5; ++d) {
      std::vector<int32_t> document;
      for (int32_t part = 0; part < d; ++part) {
        const std::vector<int32_t> ids(static_cast<size_t>(3 * part), 10 * d + part);
        file.append(ids);
        document.insert(document.end(), ids.begin(), ids.end());
      }
      file.end_document();
      want.append(document);
    }
    got = file.stream();
  }
  EXPECT_TRUE(std::ranges::equal(got.tokens(), want.tokens()));
  EXPECT_TRUE(std::ranges::equal(got.starts(), want.starts()));
  EXPECT_EQ(got.starts().size(), 4u);  // documents without a token are none
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
  EXPECT_EQ(TokenFile(dir.path()).stream().size(), 0);
  testing::expect_error([&] { TokenFile(dir.path() + "/none"); },
                        {"/none", "cannot be written", "No such file"});
}

TEST(PiecesToEncode, AreTheDocumentCutAtLines) {
  const std::string text = "one two\nthree\n\nfour.\n five\nsix seven eight\nnine";
  for (size_t bytes = 2; bytes < text.size() + 2; ++bytes) {
    std::string all;
    for (const std::string_view piece : pieces_to_encode(text, bytes)) {
      EXPECT_LE(piece.size(), bytes);
      EXPECT_FALSE(piece.empty());
      all += piece;
    }
    EXPECT_EQ(all, text);
  }
  EXPECT_EQ(pieces_to_encode(text, 46), (std::vector<std::string_view>{text.substr(0, 42), text.substr(42)}));
  EXPECT_EQ(pieces_to_encode("aa.\nbc", 5)[1],
            "\nbc");  // letters on both sides are better, but there are none
  EXPECT_EQ(pieces_to_encode("\u00e9\u00e9", 3)[1], "\u00e9");  // no character is divided
  EXPECT_TRUE(pieces_to_encode("").empty());
}

// The tokens of a text in pieces are those of the whole, for every tokenizer that qkv trains.
TEST(PiecesToEncode, GiveTheTokensOfTheWhole) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += std::string(i % 7 == 0 ? "Hello, it's " : "the \u00e9t\u00e9 of ") + std::to_string(i * 37) +
            (i % 5 == 0    ? "\n"
             : i % 11 == 0 ? ".\n\n  "
                           : " and ") +
            "so on";
  for (const char* type : {"bpe", "wordpiece", "char", "byte", "word"}) {
    TokenizerConfig config;
    config.type = type;
    config.vocab_size = 400;
    const std::string_view texts[] = {text};
    const text::Tokenizer tokenizer = train_tokenizer(config, texts, {Objective::next_token});
    const auto whole = tokenizer.encode(text, false).ids;
    for (const size_t bytes : {400, 777, 2000}) {
      std::vector<text::TokenId> ids;
      for (const std::string_view piece : pieces_to_encode(text, bytes)) {
        const auto some = tokenizer.encode(piece, false).ids;
        ids.insert(ids.end(), some.begin(), some.end());
      }
      EXPECT_EQ(ids, whole) << type << " " << bytes;
    }
  }
}

}  // namespace
}  // namespace qkv::token_file_test

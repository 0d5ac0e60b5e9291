// SentencePiece's models and the classes of transformers around them, by hand-made files.
// Covers: qkv/text/sentencepiece_classes.cc, qkv/text/sentencepiece_decoder.cc
// Covers: qkv/text/sentencepiece_file.cc
#include "qkv/text/sentencepiece.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/sentencepiece_classes.h"
#include "qkv/text/tokenizer.h"
#include "tests/unit/text/sentencepiece_testing.h"

namespace qkv::text::sentencepiece_test {
namespace {

using namespace qkv::testing;  // the writer of models
using Ids = std::vector<TokenId>;
using Strings = std::vector<std::string>;

#define MARK "\xE2\x96\x81"

// a 3, b 4, ab 5, _ 6, _a 7, _ab 8, c 9
std::string letters(const std::vector<float>& scores) {
  const char* const pieces[] = {"a", "b", "ab", MARK, MARK "a", MARK "ab", "c"};
  std::string fields;
  for (size_t i = 0; i < scores.size(); ++i) fields += piece_field(pieces[i], scores[i]);
  return fields;
}
const std::vector<float> kScores = {-3, -3, -4, -2, -4, -4.5F, -3};

Tokenizer plain(const std::string& model) {
  return Tokenizer(plain_sentencepiece_parts(model, "test.model"));
}

// The tokenizer of a directory with these files.
Tokenizer of_class(const std::string& model, const Json& config) {
  return Tokenizer(
      sentencepiece_parts({{"spiece.model", model}, {"tokenizer_config.json", config.dump()}}, "test"));
}

Strings tokens(const Tokenizer& tokenizer, const std::string& text) {
  Strings result;
  for (const TokenId id : tokenizer.encode(text).ids) result.push_back(*tokenizer.id_to_token(id));
  return result;
}

std::string refusal(const std::string& model) {
  try {
    plain(model);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SentencePieceUnigram, TakesTheMostProbablePath) {
  const Tokenizer tokenizer = plain(sentencepiece_model(kUnigram, letters(kScores)));
  EXPECT_EQ(tokenizer.encode("ab").ids, (Ids{8}));  // -4.5, over _a b: -7 and _ ab: -6
  EXPECT_EQ(tokenizer.encode("ba").ids, (Ids{6, 4, 3}));
  EXPECT_EQ(tokenizer.encode("abab ab").ids, (Ids{8, 5, 8}));
  EXPECT_EQ(tokenizer.encode("").ids, Ids{});
  const Encoding encoding = tokenizer.encode(" ab  cab ");
  EXPECT_EQ(encoding.ids, (Ids{8, 6, 9, 5}));  // spaces at the ends and repeated ones go
  EXPECT_EQ(encoding.offsets, (std::vector<Range>{{1, 3}, {3, 4}, {5, 6}, {6, 8}}));
  std::vector<float> cheap = kScores;
  cheap[5] = -6.5F;
  EXPECT_EQ(plain(sentencepiece_model(kUnigram, letters(cheap))).encode("ab").ids, (Ids{6, 5}));
}

TEST(SentencePieceUnigram, UnknownCharactersBecomeOne) {
  const Tokenizer tokenizer = plain(sentencepiece_model(kUnigram, letters(kScores)));
  EXPECT_EQ(tokenizer.encode("axyza").ids, (Ids{7, 0, 3}));
  EXPECT_EQ(tokenizer.encode("axyza").offsets[1], (Range{1, 4}));
  EXPECT_EQ(tokenizer.decode(Ids{7, 0, 3}), "a \xE2\x81\x87 a");
}

TEST(SentencePieceUnigram, UserDefinedPiecesAlwaysWin) {
  const std::string pieces =
      letters(kScores) + piece_field("bc", 0, kUserDefined) + piece_field("aba", -0.1F, kUnused);
  const Tokenizer tokenizer = plain(sentencepiece_model(kUnigram, pieces));
  EXPECT_EQ(tokens(tokenizer, "abc"), (Strings{MARK "a", "bc"}));
  EXPECT_EQ(tokens(tokenizer, "caba"), (Strings{MARK, "c", "ab", "a"}));  // unused pieces never
}

TEST(SentencePieceBpe, JoinsByScore) {
  // bc 10, abc 11
  const std::string more = piece_field("bc", -1) + piece_field("abc", -9);
  std::vector<float> scores = {0, 0, -2, 0, -3, -4, 0};
  const std::string model = sentencepiece_model(kBpe, letters(scores) + more);
  EXPECT_EQ(tokens(plain(model), "ab"), (Strings{MARK "ab"}));
  EXPECT_EQ(tokens(plain(model), "abc"), (Strings{MARK "a", "bc"}));  // bc is joined first
  EXPECT_EQ(tokens(plain(model), "babc"), (Strings{MARK, "b", "abc"}));
  EXPECT_EQ(tokens(plain(model), "xxa"), (Strings{MARK, "<unk>", "a"}));
  // Equal scores: the leftmost first.
  const std::string even = sentencepiece_model(
      kBpe, letters({0, 0}) + piece_field("ab", -1) + piece_field("ba", -1), number_field(3, 0));
  EXPECT_EQ(tokens(plain(even), "aba"), (Strings{"ab", "a"}));
  EXPECT_EQ(tokens(plain(even), "bab"), (Strings{"ba", "b"}));
}

TEST(SentencePieceBpe, PiecesMaySpanWords) {
  const std::string pieces = letters({-3, -3, -2, -3, -4, -4.5F}) + piece_field("b" MARK, -1);
  EXPECT_EQ(tokens(plain(sentencepiece_model(kBpe, pieces)), "ab a"), (Strings{MARK "a", "b" MARK, "a"}));
  EXPECT_EQ(tokens(plain(sentencepiece_model(kBpe, letters({-3, -3, -2, -3, -4, -4.5F}))), "ab a"),
            (Strings{MARK "ab", MARK "a"}));
}

TEST(SentencePieceBpe, UnusedPiecesAreTakenApart) {
  const std::string pieces = letters({0, 0}) + piece_field("ab", -1, kUnused) +
                             piece_field("aba", -2, kUnused) + piece_field("abab", -3) +
                             piece_field("b!", 0, kUserDefined);
  const Tokenizer tokenizer = plain(sentencepiece_model(kBpe, pieces, number_field(3, 0)));
  EXPECT_EQ(tokens(tokenizer, "aba"), (Strings{"a", "b", "a"}));
  EXPECT_EQ(tokens(tokenizer, "abb!a"),
            (Strings{"a", "b", "b!", "a"}));  // nothing joins what the user defined
}

TEST(SentencePieceOthers, WordsAndCharacters) {
  const std::string words = sentencepiece_model(kWord, letters(kScores));
  EXPECT_EQ(plain(words).encode("ab b a").ids, (Ids{8, 0, 7}));
  const std::string characters =
      sentencepiece_model(kChar, letters(kScores) + piece_field("cc", 0, kUserDefined));
  EXPECT_EQ(plain(characters).encode("ab ccca").ids, (Ids{6, 3, 4, 6, 10, 9, 3}));
}

std::string with_bytes(uint64_t type, const std::string& normalizer = "") {
  std::string pieces;
  for (int b = 0; b < 256; ++b) pieces += piece_field(fmt::format("<0x{:02X}>", b), 0, kByte);
  return sentencepiece_model(type, pieces + letters(kScores), normalizer, number_field(35, 1));
}

TEST(SentencePieceBytes, UnknownCharactersBecomeTheirBytes) {
  for (const uint64_t type : {kUnigram, kBpe, kChar}) {
    const Tokenizer tokenizer = plain(with_bytes(type));
    EXPECT_EQ(tokens(tokenizer,
                     "b\xC3\xA9"
                     "b"),
              (Strings{MARK, "b", "<0xC3>", "<0xA9>", "b"}));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("b\xC3\xA9 \xF0\x9F\xA6\x99").ids),
              "b\xC3\xA9 \xF0\x9F\xA6\x99");
  }
  const Tokenizer tokenizer = plain(with_bytes(kUnigram));
  const TokenId c3 = 3 + 0xC3;
  EXPECT_EQ(tokenizer.decode(Ids{c3, c3, 3 + 0xA9, c3}), "\xEF\xBF\xBD\xC3\xA9\xEF\xBF\xBD");
}

TEST(SentencePieceBytes, StreamsWholeCharacters) {
  const Tokenizer tokenizer = plain(with_bytes(kUnigram));
  std::string text;
  for (int i = 0; i < 60; ++i) text += "\xE4\xBD\xA0";
  text += " a ab \xF0\x9F\xA6\x99";
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const TokenId id : tokenizer.encode(text).ids) {
    const std::string part = stream.add(id);
    EXPECT_EQ(part.find("\xEF\xBF\xBD"), part.npos);
    streamed += part;
  }
  EXPECT_EQ(streamed + stream.finish(), text);
  for (const int byte : {0xF0, 0x9F}) EXPECT_EQ(stream.add(3 + byte), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD\xEF\xBF\xBD");
  for (int i = 0; i < 100; ++i) streamed += stream.add(3 + 0xC3);  // never a character
  EXPECT_LT(streamed.size(), text.size() + 301);
}

TEST(SentencePieceNormalizer, FlagsOfTheFile) {
  const auto texts = [&](const std::string& normalizer, const std::string& trainer, const char* text) {
    return tokens(plain(sentencepiece_model(kChar, letters(kScores), normalizer, trainer)), text);
  };
  EXPECT_EQ(texts("", "", " a  b "), (Strings{MARK, "a", MARK, "b"}));
  EXPECT_EQ(texts(number_field(3, 0), "", " a  b "), (Strings{"a", MARK, "b"}));
  EXPECT_EQ(texts(number_field(4, 0), "", " a  b "), (Strings{MARK, MARK, "a", MARK, MARK, "b", MARK}));
  EXPECT_EQ(texts(number_field(5, 0), "", "a b"), (Strings{"<unk>", "a", "<unk>", "b"}));  // plain spaces
  EXPECT_EQ(texts("", number_field(24, 1), "a b"), (Strings{"a", MARK, "b", MARK}));       // as a suffix
  EXPECT_EQ(texts("", "", "   "), Strings{});
}

TEST(SentencePieceNormalizer, RulesOfTheCharsmap) {
  const std::string rule = bytes_field(2, charsmap_of_one('X', "ab"));
  const Tokenizer tokenizer = plain(sentencepiece_model(kUnigram, letters(kScores), rule));
  const Encoding encoding = tokenizer.encode("cXc");
  EXPECT_EQ(encoding.ids, (Ids{6, 9, 5, 9}));
  EXPECT_EQ(encoding.offsets[2], (Range{1, 2}));
  // A rule may make spaces, which are as others then.
  const std::string space = bytes_field(2, charsmap_of_one('X', " "));
  EXPECT_EQ(tokens(plain(sentencepiece_model(kUnigram, letters(kScores), space)), "XaXX bX"),
            (Strings{MARK "a", MARK, "b"}));
  // User-defined pieces are spared.
  const std::string pieces = letters(kScores) + piece_field("Xb", 0, kUserDefined);
  EXPECT_EQ(tokens(plain(sentencepiece_model(kUnigram, pieces, rule)), "XXb"), (Strings{MARK "ab", "Xb"}));
}

TEST(SentencePieceDecoder, MarksBecomeSpaces) {
  const std::string pieces = letters(kScores);
  const Tokenizer single = plain(sentencepiece_model(kUnigram, pieces));
  EXPECT_EQ(single.decode(Ids{6, 8, 7, 9}), "ab ac");  // every mark at the start goes
  EXPECT_EQ(single.decode(Ids{1, 8, 2, 7}), "ab a");   // control symbols are silent
  const Tokenizer every = plain(sentencepiece_model(kUnigram, pieces, number_field(4, 0)));
  EXPECT_EQ(every.decode(Ids{6, 8}), " ab");  // one mark
  const Tokenizer neither =
      plain(sentencepiece_model(kUnigram, pieces, number_field(3, 0) + number_field(4, 0)));
  EXPECT_EQ(neither.decode(Ids{6, 8}), "  ab");
  const std::string surface = sentencepiece_model(kUnigram, pieces, "", bytes_field(44, "?"));
  EXPECT_EQ(plain(surface).decode(Ids{8, 0}), "ab?");
}

TEST(SentencePieceFile, WhatIsNoModelIsRefused) {
  const std::string good = sentencepiece_model(kUnigram, letters(kScores));
  EXPECT_NE(refusal("").find("0 pieces for what is unknown"), std::string::npos);
  EXPECT_NE(refusal("hello, world").find("not a SentencePiece model"), std::string::npos);
  EXPECT_NE(refusal(good + piece_field("a", 0)).find("\"a\" appears twice"), std::string::npos);
  EXPECT_NE(refusal(good + piece_field("", 0)).find("piece 10 is empty"), std::string::npos);
  EXPECT_NE(refusal(good + piece_field("\xFF", 0)).find("not valid UTF-8"), std::string::npos);
  EXPECT_NE(refusal(good + piece_field("x", 0, 7)).find("the unknown type 7"), std::string::npos);
  EXPECT_NE(refusal(good + piece_field("x", 1e30F * 1e30F)).find("finite"), std::string::npos);
  EXPECT_NE(refusal(good + piece_field("x", 0, kUnknown)).find("2 pieces for what is unknown"),
            std::string::npos);
  EXPECT_NE(refusal(sentencepiece_model(9, "")).find("the unknown model type 9"), std::string::npos);
  EXPECT_NE(refusal(sentencepiece_model(1, "", "", number_field(35, 1))).find("0 pieces for bytes"),
            std::string::npos);
  EXPECT_NE(refusal(good.substr(0, good.size() - 1)).find("bytes expected"), std::string::npos);
  EXPECT_NE(refusal(good + std::string(11, '\xFF')).find("more than 64 bits"), std::string::npos);
  const auto with_charsmap = [&](const std::string& bytes) {
    return refusal(sentencepiece_model(kUnigram, "", bytes_field(2, bytes)));
  };
  EXPECT_NE(with_charsmap("abc").find("not a compiled map"), std::string::npos);
  EXPECT_NE(with_charsmap("\xFF\xFF\xFF\x7F").find("not a compiled map"), std::string::npos);
  EXPECT_NE(with_charsmap(charsmap_of_one('a', "b") + "x").find("does not end"), std::string::npos);
  EXPECT_NE(with_charsmap(charsmap_of_one('a', "\xFF")).find("not valid UTF-8"), std::string::npos);
}

TEST(SentencePieceClasses, Llama) {
  const std::string model = with_bytes(kUnigram, number_field(4, 0));
  const Tokenizer legacy = of_class(model, {{"tokenizer_class", "LlamaTokenizer"}});
  EXPECT_EQ(tokens(legacy, "ab<s>ab"), (Strings{"<s>", MARK "ab", "<s>", MARK "ab"}));
  EXPECT_EQ(legacy.encode_pair("a", "b").ids.front(), legacy.encode_pair("a", "b").ids[2]);
  const Tokenizer now = of_class(model, {{"tokenizer_class", "LlamaTokenizerFast"}, {"legacy", false}});
  EXPECT_EQ(tokens(now, "ab<s>ab<s> ab"), (Strings{"<s>", MARK "ab", "<s>", "ab", "<s>", MARK "ab"}));
  EXPECT_EQ(now.decode(now.encode(" ab a", false).ids), " ab a");
  const Tokenizer ends = of_class(
      model, {{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", false}, {"add_eos_token", true}});
  EXPECT_EQ(tokens(ends, "ab"), (Strings{MARK "ab", "</s>"}));
}

TEST(SentencePieceClasses, T5) {
  const std::string model = sentencepiece_model(kUnigram, letters(kScores));  // 10 pieces
  const Tokenizer tokenizer = of_class(model, {{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 2}});
  EXPECT_EQ(tokenizer.token_to_id("<extra_id_0>"), 11);
  EXPECT_EQ(tokenizer.token_to_id("<pad>"), 12);
  EXPECT_EQ(tokens(tokenizer, "ab <extra_id_1> ab"), (Strings{MARK "ab", "<extra_id_1>", MARK "ab", "</s>"}));
  EXPECT_EQ(tokens(tokenizer, "ab</s>"), (Strings{MARK "ab", "</s>"}));  // not twice
  EXPECT_EQ(tokenizer.encode_pair("a", "a").ids, (Ids{7, 2, 7, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{8, 10, 8, 2}), "ab <extra_id_1> ab</s>");
}

TEST(SentencePieceClasses, Albert) {
  const std::string pieces = letters(kScores) + piece_field("[CLS]", 0, kControl) +
                             piece_field("[SEP]", 0, kControl) + piece_field("1", -2) +
                             piece_field("1,", -1) + piece_field(",", -3);
  const std::string model = sentencepiece_model(kUnigram, pieces);
  const Tokenizer tokenizer = of_class(model, {{"tokenizer_class", "AlbertTokenizer"}});
  EXPECT_EQ(tokens(tokenizer,
                   " \xC3\x81"
                   "B  A1,A"),
            (Strings{"[CLS]", MARK "ab", MARK "a", "1", ",", "a", "[SEP]"}));
  EXPECT_EQ(tokenizer.encode_pair("a", "b").type_ids, (Ids{0, 0, 0, 1, 1, 1}));
  const Tokenizer cased = of_class(
      model, {{"tokenizer_class", "AlbertTokenizer"}, {"do_lower_case", false}, {"keep_accents", true}});
  EXPECT_EQ(tokens(cased, "ab \xC3\xA1"), (Strings{"[CLS]", MARK "ab", MARK, "<unk>", "[SEP]"}));
}

TEST(SentencePieceClasses, Xlnet) {
  const std::string model = sentencepiece_model(kUnigram, letters(kScores));  // 10 pieces
  const Tokenizer tokenizer = of_class(model, {{"tokenizer_class", "XLNetTokenizer"}});
  EXPECT_EQ(tokens(tokenizer, "ab <mask>"), (Strings{MARK "ab", "<mask>", "<sep>", "<cls>"}));
  const Encoding pair = tokenizer.encode_pair("a", "a");
  EXPECT_EQ(pair.ids, (Ids{7, 10, 7, 10, 12}));
  EXPECT_EQ(pair.type_ids, (Ids{0, 0, 1, 1, 2}));
  EXPECT_EQ(tokenizer.decode(Ids{8, 8, 10, 12}), "ab ab<sep><cls>");
}

TEST(SentencePieceClasses, XlmRoberta) {
  const std::string model = sentencepiece_model(kUnigram, letters(kScores));
  const Tokenizer tokenizer = of_class(model, {{"tokenizer_class", "XLMRobertaTokenizer"}});
  EXPECT_EQ(tokenizer.encode("ab x<mask>").ids, (Ids{0, 9, 7, 3, 11, 2}));  // one more than in the file
  EXPECT_EQ(tokenizer.encode_pair("a", "a").ids, (Ids{0, 8, 2, 2, 8, 2}));
  EXPECT_EQ(tokenizer.token_to_id("<pad>"), 1);
  EXPECT_EQ(tokenizer.ids_without_text(12), (Ids{3}));
  EXPECT_EQ(tokenizer.decode(Ids{9, 8}), "ab a");
  EXPECT_THROW(of_class(piece_field("<unk>", 0, kUnknown), {{"tokenizer_class", "XLMRobertaTokenizer"}}),
               Error);
}

TEST(SentencePieceClasses, WithoutAClass) {
  const Tokenizer tokenizer = of_class(sentencepiece_model(kUnigram, letters(kScores)), Json::object());
  EXPECT_EQ(tokens(tokenizer, "ab</s>a"), (Strings{MARK "ab", "</s>", MARK "a"}));
  EXPECT_TRUE(tokenizer.is_special(2));
  // The library itself sees no special tokens in texts.
  EXPECT_EQ(plain(sentencepiece_model(kUnigram, letters(kScores))).encode("</s>").ids, (Ids{6, 0}));
}

TEST(SentencePieceClasses, AreSavedAsTheyWereFound) {
  const std::string path = ::testing::TempDir() + "/qkv_sentencepiece_" + std::to_string(::getpid());
  const std::string model = sentencepiece_model(kUnigram, letters(kScores));
  const Tokenizer tokenizer = of_class(model, {{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 2}});
  tokenizer.save(path);
  EXPECT_EQ(read_file(path + "/spiece.model"), model);
  EXPECT_TRUE(Tokenizer::exists(path));
  EXPECT_EQ(Tokenizer::load(path).encode("ab<extra_id_1>").ids, (Ids{8, 10, 2}));
  EXPECT_EQ(Tokenizer::load(path + "/spiece.model").encode("ab").ids, (Ids{8}));
  // Through JSON, which holds the files.
  const Tokenizer again = Tokenizer::from_json(tokenizer.to_json());
  EXPECT_EQ(again.to_json(), tokenizer.to_json());
  EXPECT_EQ(again.encode("ab<extra_id_1>").ids, (Ids{8, 10, 2}));
  std::filesystem::remove_all(path);
}

TEST(SentencePieceClasses, OddFilesAreRefused) {
  const std::string model = sentencepiece_model(kUnigram, letters(kScores));
  EXPECT_THROW(of_class(model, {{"tokenizer_class", "GPT2Tokenizer"}}), Error);
  EXPECT_THROW(of_class(model, {{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", 1'000'000}}), Error);
  EXPECT_THROW(of_class(model, {{"tokenizer_class", "T5Tokenizer"}, {"extra_ids", -1}}), Error);
  EXPECT_THROW(Tokenizer::from_json(R"({"files": {"../x.model": ""}})"), Error);
  EXPECT_THROW(Tokenizer::from_json(R"({"files": {"spiece.model": "?"}})"), Error);
  EXPECT_THROW(Tokenizer::from_json(R"({"files": {}})"), Error);
}

}  // namespace
}  // namespace qkv::text::sentencepiece_test

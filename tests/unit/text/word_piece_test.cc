// BERT's pipeline: its normaliser, pre-tokeniser, model, template and decoder, and its file format.
// Covers: qkv/text/trie.cc
#include "qkv/text/word_piece.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/normalizer.h"
#include "qkv/text/tokenizer.h"
#include "qkv/text/trie.h"

namespace qkv::text::word_piece_test {
namespace {

namespace fs = std::filesystem;

using Ids = std::vector<TokenId>;
using Strings = std::vector<std::string>;

const char* const kVocabulary[] = {"[PAD]",  "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un",      "##aff",
                                   "##able", "##a",   "a",     "want",  "##ed",   "it",      "'",
                                   "s",      ",",     ".",     "cafe",  "Cafe",   "\xC3\xA9"};

// Ids are the places in kVocabulary.
Json bert_json() {
  Json json = Json::parse(R"({"version": "1.0",
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                   "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100}})");
  int id = 0;
  for (const char* token : kVocabulary) json["model"]["vocab"][token] = id++;
  return json;
}

Tokenizer tokenizer_of(const Json& json) {
  return Tokenizer::from_json(json.dump());
}

// Applies a normaliser and BERT's pre-tokeniser to a text: the pieces, and their sources.
struct Pieces {
  Strings texts, sources;
};
Pieces pieces(const Json& normalizer, const std::string& text) {
  const auto stage = parse_normalizer(JsonField(normalizer, "normalizer"));
  const Json bert = {{"type", "BertPreTokenizer"}};
  PieceList list(stage->normalize(AlignedText(text, 0)));
  parse_pre_tokenizer(JsonField(bert, "pre_tokenizer"))->split(list);
  Pieces result;
  for (size_t i = 0; i < list.pieces.size(); ++i) {
    const Range source = list.text.source_range(list.pieces[i]);
    result.texts.emplace_back(list.piece(i));
    result.sources.push_back(text.substr(source.begin, source.size()));
  }
  return result;
}

TEST(BertNormalizer, LowercasesAndStripsAccents) {
  const Json normalizer = {{"type", "BertNormalizer"}};
  EXPECT_EQ(pieces(normalizer, "H\xC3\xA9LLO \xC3\x85ngstr\xC3\xB6m").texts, (Strings{"hello", "angstrom"}));
  EXPECT_EQ(pieces(normalizer, "H\xC3\xA9LLO").sources, (Strings{"H\xC3\xA9LLO"}));
  // Dotted capital I: i, and a dot above that goes as an accent.
  EXPECT_EQ(pieces(normalizer, "\xC4\xB0x").texts, (Strings{"ix"}));
  // A spacing mark (U+0903) is not stripped.
  EXPECT_EQ(pieces(normalizer, "\xE0\xA4\x95\xE0\xA4\x83").texts, (Strings{"\xE0\xA4\x95\xE0\xA4\x83"}));
}

TEST(BertNormalizer, EachFlagIsAStep) {
  const auto texts = [](Json flags, const char* text) {
    flags["type"] = "BertNormalizer";
    return pieces(flags, text).texts;
  };
  const char* text =
      "\xC3\x89"
      "a\xE2\x80\x8B"
      "b\xE4\xBD\xA0\xE5\xA5\xBD";  // E acute, a, zero width space, b, two ideographs
  EXPECT_EQ(texts({}, text), (Strings{"eab", "\xE4\xBD\xA0", "\xE5\xA5\xBD"}));
  EXPECT_EQ(texts({{"clean_text", false}}, text), (Strings{"ea\xE2\x80\x8B"
                                                           "b",
                                                           "\xE4\xBD\xA0", "\xE5\xA5\xBD"}));
  EXPECT_EQ(texts({{"handle_chinese_chars", false}}, text), (Strings{"eab\xE4\xBD\xA0\xE5\xA5\xBD"}));
  EXPECT_EQ(texts({{"strip_accents", false}}, text), (Strings{"\xC3\xA9"
                                                              "ab",
                                                              "\xE4\xBD\xA0", "\xE5\xA5\xBD"}));
  EXPECT_EQ(texts({{"lowercase", false}}, text), (Strings{"\xC3\x89"
                                                          "ab",
                                                          "\xE4\xBD\xA0", "\xE5\xA5\xBD"}));
  EXPECT_EQ(texts({{"lowercase", false}, {"strip_accents", true}}, text),
            (Strings{"Eab", "\xE4\xBD\xA0", "\xE5\xA5\xBD"}));
  EXPECT_EQ(texts({},
                  "a\tb\nc\r\nd\x01"
                  "e\xC2\xA0"
                  "f\xEF\xBF\xBD"
                  "g"),
            (Strings{"a", "b", "c", "de", "fg"}));
}

TEST(BertPreTokenizer, PunctuationStandsAlone) {
  const Json keep = {{"type", "BertNormalizer"}, {"lowercase", false}};
  EXPECT_EQ(pieces(keep, "It's $3.5^2 (x_y)").texts,
            (Strings{"It", "'", "s", "$", "3", ".", "5", "^", "2", "(", "x", "_", "y", ")"}));
  // U+2014 is punctuation, the euro sign a symbol.
  EXPECT_EQ(pieces(keep,
                   "a\xE2\x80\x94"
                   "b\xE2\x82\xAC")
                .texts,
            (Strings{"a", "\xE2\x80\x94", "b\xE2\x82\xAC"}));
}

TEST(WordPiece, TakesTheLongestTokenEachTime) {
  const Tokenizer tokenizer = tokenizer_of(bert_json());
  EXPECT_EQ(tokenizer.encode("unaffable unwanted", false).ids, (Ids{5, 6, 7, 1}));  // no "##w..."
  EXPECT_EQ(tokenizer.encode("wanted una", false).ids, (Ids{10, 11, 5, 8}));
  const Encoding encoding = tokenizer.encode("  Unaffable,", false);
  EXPECT_EQ(encoding.ids, (Ids{5, 6, 7, 15}));
  EXPECT_EQ(encoding.offsets, (std::vector<Range>{{2, 4}, {4, 7}, {7, 11}, {11, 12}}));
  // Greedy: takes "##aff", and the rest has no token, though "##a" would have worked.
  EXPECT_EQ(tokenizer.encode("unaffa unaffx", false).ids, (Ids{5, 6, 8, 1}));
}

TEST(WordPiece, UnknownAndLongWords) {
  Json json = bert_json();
  json["model"]["max_input_chars_per_word"] = 3;
  EXPECT_EQ(tokenizer_of(json).encode("una want s", false).ids, (Ids{5, 8, 1, 14}));
  const Encoding encoding = tokenizer_of(json).encode("s want", false);
  EXPECT_EQ(encoding.offsets[1], (Range{2, 6}));  // the whole word
  json["model"]["unk_token"] = "[NONE]";
  EXPECT_EQ(tokenizer_of(json).encode("una", false).ids, (Ids{5, 8}));
  EXPECT_THROW(tokenizer_of(json).encode("want"), Error);
  json["model"]["max_input_chars_per_word"] = -1;
  EXPECT_THROW(tokenizer_of(json), Error);
}

TEST(WordPiece, TakesSpelledBytes) {
  Json json = bert_json();
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
  const TokenId e_acute = 20, continued = 21;
  json["model"]["vocab"]["\xC3\x83"] = e_acute;      // how the byte alphabet spells C3
  json["model"]["vocab"]["##\xC2\xA9"] = continued;  // and A9
  const Encoding encoding = tokenizer_of(json).encode("\xC3\xA9", false);
  EXPECT_EQ(encoding.ids, (Ids{e_acute, continued}));
  EXPECT_EQ(encoding.offsets, (std::vector<Range>{{0, 1}, {1, 2}}));
}

TEST(BertProcessing, PutsSpecialTokensAround) {
  const Tokenizer tokenizer = tokenizer_of(bert_json());
  EXPECT_EQ(tokenizer.encode("it").ids, (Ids{2, 12, 3}));
  const Encoding pair = tokenizer.encode_pair("it", "a wanted");
  EXPECT_EQ(pair.ids, (Ids{2, 12, 3, 9, 10, 11, 3}));
  EXPECT_EQ(pair.type_ids, (Ids{0, 0, 0, 1, 1, 1, 1}));
  Json json = bert_json();
  json["post_processor"]["cls"][1] = 99;
  EXPECT_THROW(tokenizer_of(json), Error);
}

TEST(WordPieceDecoder, JoinsPiecesAndCleansUp) {
  Json json = bert_json();
  EXPECT_EQ(tokenizer_of(json).decode(Ids{12, 13, 14, 10, 11, 15, 5, 8, 16}), "it ' s wanted, una.");
  json["decoder"]["cleanup"] = false;
  EXPECT_EQ(tokenizer_of(json).decode(Ids{12, 10, 11, 15}), "it wanted ,");
  EXPECT_EQ(tokenizer_of(json).decode(Ids{11, 11}), "##eded");  // the first piece keeps its mark
}

TEST(ReplaceDecoder, ReplacesWithinTokensAndEndsExplosions) {
  Json json = bert_json();
  const Json stage = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  json["decoder"] = stage;
  EXPECT_EQ(tokenizer_of(json).decode(Ids{9, 8}), "aa##aa");
  json["decoder"] = {{"type", "Sequence"}, {"decoders", std::vector<Json>(40, stage)}};
  EXPECT_THROW(tokenizer_of(json).decode(Ids{9}), Error);
}

TEST(BertPipeline, IsWrittenAsItWasRead) {
  const Tokenizer tokenizer = tokenizer_of(bert_json());
  EXPECT_EQ(tokenizer_of(Json::parse(tokenizer.to_json())).to_json(), tokenizer.to_json());
  const Json written = Json::parse(tokenizer.to_json());
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "model"})
    EXPECT_EQ(written[part], bert_json()[part]) << part;
}

// The format with vocab.txt, in a folder that is removed with the test.
class BertFolder {
 public:
  BertFolder() : path_(fs::path(::testing::TempDir()) / ("qkv_bert_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    std::string lines;
    for (const char* token : kVocabulary) lines += std::string(token) + "\n";
    write("vocab.txt", lines);
  }
  ~BertFolder() { fs::remove_all(path_); }
  void write(const char* name, const std::string& contents) const {
    write_file_atomically((path_ / name).string(), contents);
  }
  Tokenizer load() const { return Tokenizer::load(path_.string()); }

 private:
  fs::path path_;
};

TEST(VocabText, MeansBertsPipeline) {
  const BertFolder folder;
  EXPECT_EQ(folder.load().encode("CAF\xC3\x89 [MASK]").ids, (Ids{2, 17, 4, 3}));
  EXPECT_EQ(folder.load().decode(Ids{2, 12, 15, 3}, true), "it ,");
  folder.write("tokenizer_config.json", R"({"do_lower_case": false, "clean_up_tokenization_spaces": true})");
  EXPECT_EQ(folder.load().encode("Cafe e\xCC\x81").ids, (Ids{2, 18, 19, 3}));  // composed, not stripped
  EXPECT_EQ(folder.load().decode(Ids{12, 13, 14, 15}), "it's,");
}

TEST(VocabText, FilesNameTheSpecialTokens) {
  const BertFolder folder;
  folder.write("tokenizer_config.json", R"({"cls_token": "<s>", "sep_token": {"content": "</s>"}})");
  EXPECT_EQ(folder.load().encode("it").ids, (Ids{21, 12, 20}));  // they come after the vocabulary
  folder.write("tokenizer_config.json", R"({"cls_token": 7})");
  EXPECT_THROW(folder.load(), Error);
}

TEST(VocabText, OddLines) {
  const BertFolder folder;
  folder.write("vocab.txt", "[UNK]\r\na\r\n\nb\na\n[CLS]\n[SEP]");
  EXPECT_EQ(folder.load().encode("a b", false).ids, (Ids{4, 3}));  // the later of two
  folder.write("vocab.txt", "[UNK]\n\xFF\n");
  EXPECT_THROW(folder.load(), Error);
  folder.write("vocab.txt", "");
  EXPECT_EQ(folder.load().encode("").ids, (Ids{3, 1}));  // only added ones: [UNK], [SEP], [PAD], [CLS] ...
}

TEST(Trie, FindsEveryPrefix) {
  const Trie trie({{"a", 1}, {"ab", 2}, {"abcd", 3}, {"\xFF", 4}, {"", 5}});
  EXPECT_EQ(trie.value(Trie::kRoot), 5);
  EXPECT_EQ(trie.value(trie.walk(Trie::kRoot, "ab")), 2);
  EXPECT_EQ(trie.value(trie.walk(Trie::kRoot, "abc")), Trie::kNoValue);
  EXPECT_EQ(trie.value(trie.walk(trie.walk(Trie::kRoot, "ab"), "cd")), 3);
  EXPECT_EQ(trie.value(trie.walk(Trie::kRoot, "\xFF")), 4);
  EXPECT_EQ(trie.walk(Trie::kRoot, "b"), Trie::kNowhere);
  EXPECT_EQ(trie.walk(Trie::kRoot, "abcde"), Trie::kNowhere);
  EXPECT_EQ(Trie().child(Trie::kRoot, 'a'), Trie::kNowhere);
}

}  // namespace
}  // namespace qkv::text::word_piece_test

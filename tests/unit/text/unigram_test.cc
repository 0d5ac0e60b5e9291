// The stages of tokenizer.json that represent SentencePiece models.
// Covers: qkv/text/charsmap.cc
#include "qkv/text/unigram.h"

#include <gtest/gtest.h>

#include <map>

#include "qkv/base/base64.h"
#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/decoder.h"
#include "qkv/text/normalizer.h"
#include "qkv/text/tokenizer.h"
#include "tests/unit/text/sentencepiece_testing.h"

namespace qkv::text::unigram_test {
namespace {

using Ids = std::vector<TokenId>;
using Strings = std::vector<std::string>;

#define MARK "\xE2\x96\x81"

// <unk> 0, a 1, b 2, ab 3, _ 4, _a 5, _ab 6, c 7, <0xC3> 8, <0xA9> 9
Json unigram_json() {
  return Json::parse(R"({"version": "1.0",
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
      "vocab": [["<unk>", 0], ["a", -3], ["b", -3], ["ab", -4], ["▁", -2], ["▁a", -4], ["▁ab", -4.5], ["c", -3],
                ["<0xC3>", -9], ["<0xA9>", -9]]}})");
}

Tokenizer tokenizer_of(const Json& json) {
  return Tokenizer::from_json(json.dump());
}

Strings tokens(const Json& json, const std::string& text) {
  const Tokenizer tokenizer = tokenizer_of(json);
  Strings result;
  for (const TokenId id : tokenizer.encode(text).ids) result.push_back(*tokenizer.id_to_token(id));
  return result;
}

// Applies a normaliser to a text.
std::string normalized(const Json& stage, const std::string& text) {
  return std::string(
      parse_normalizer(JsonField(stage, "normalizer"))->normalize(AlignedText(text, 0)).view());
}

std::string decoded(const Json& stage, Strings tokens) {
  parse_decoder(JsonField(stage, "decoder"))->decode(tokens);
  std::string text;
  for (const std::string& token : tokens) text += token + "|";
  return text;
}

TEST(Unigram, TakesTheMostProbablePath) {
  const Tokenizer tokenizer = tokenizer_of(unigram_json());
  EXPECT_EQ(tokenizer.encode("ab").ids, (Ids{6}));
  EXPECT_EQ(tokenizer.encode("ba abab").ids, (Ids{4, 2, 1, 6, 3}));
  EXPECT_EQ(tokenizer.encode("ab  c").offsets, (std::vector<Range>{{0, 2}, {2, 3}, {3, 4}, {4, 5}}));
  EXPECT_EQ(tokenizer.decode(Ids{6, 5, 7}), "ab ac");
}

// Tries all segmentations.
TEST(Unigram, EqualsTheDefinition) {
  const Json json = unigram_json();
  const Tokenizer tokenizer = tokenizer_of(json);
  std::map<std::string, double> scores;
  for (const Json& entry : json["model"]["vocab"]) scores[entry[0]] = entry[1];
  for (int code = 0; code < 243; ++code) {
    std::string text;
    for (int i = 0, rest = code; i < 5; ++i, rest /= 3) text += "abc"[rest % 3];
    const std::string marked = MARK + text;
    double best = -1e9;
    for (int cuts = 0; cuts < 32; ++cuts) {
      double sum = 0;
      std::string token(marked, 0, 3);
      for (int i = 0; i < 5; ++i) {
        if ((cuts >> i & 1) != 0) {
          sum += scores.contains(token) ? scores[token] : -1e9;
          token.clear();
        }
        token += text[static_cast<size_t>(i)];
      }
      sum += scores.contains(token) ? scores[token] : -1e9;
      best = std::max(best, sum);
    }
    double got = 0;
    for (const TokenId id : tokenizer.encode(text).ids) got += scores[*tokenizer.id_to_token(id)];
    EXPECT_NEAR(got, best, 1e-9) << text;
  }
}

TEST(Unigram, UnknownCharacters) {
  Json json = unigram_json();
  EXPECT_EQ(tokens(json, "a\xC3\xA9z"), (Strings{MARK "a", "<unk>"}));  // one for a run
  json["model"]["byte_fallback"] = true;
  EXPECT_EQ(tokens(json, "a\xC3\xA9"), (Strings{MARK "a", "<0xC3>", "<0xA9>"}));
  EXPECT_EQ(tokens(json, "az"), (Strings{MARK "a", "<unk>"}));  // without the byte
  json["model"]["unk_id"] = nullptr;
  EXPECT_EQ(tokens(json, "ab"), (Strings{MARK "ab"}));
  EXPECT_THROW(tokens(json, "az"), Error);
  EXPECT_EQ(Json::parse(tokenizer_of(json).to_json())["model"], json["model"]);
}

TEST(Unigram, DamagedFilesAreRefused) {
  const auto refused = [](const char* pointer, const Json& value) {
    Json json = unigram_json();
    json[Json::json_pointer(pointer)] = value;
    EXPECT_THROW(tokenizer_of(json), Error) << pointer << value;
  };
  refused("/model/unk_id", 10);
  refused("/model/unk_id", -1);
  refused("/model/vocab", {{"a", 0}});
  refused("/model/vocab/1", Json::array({"b", 0}));  // twice
  refused("/model/vocab/1", Json::array({"x"}));
  refused("/model/vocab/1/1", "0");
  refused("/pre_tokenizer/replacement", "__");
  refused("/pre_tokenizer/prepend_scheme", "last");
  refused("/decoder/replacement", "");
}

TEST(Metaspace, SchemesAndSplitting) {
  Json json = unigram_json();
  json["added_tokens"] = {{{"id", 7}, {"content", "c"}, {"special", true}, {"normalized", false}}};
  EXPECT_EQ(tokens(json, "acab"), (Strings{MARK "a", "c", MARK "ab"}));
  EXPECT_EQ(tokens(json, " ab"), (Strings{MARK "ab"}));  // already has a mark
  json["pre_tokenizer"]["prepend_scheme"] = "first";
  EXPECT_EQ(tokens(json, "acab"), (Strings{MARK "a", "c", "ab"}));
  json["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_EQ(tokens(json, "a ab"), (Strings{"a", MARK "ab"}));
  json["decoder"]["prepend_scheme"] = "never";
  EXPECT_EQ(tokenizer_of(json).decode(Ids{6, 6}), " ab ab");
  json["pre_tokenizer"].erase("prepend_scheme");
  json["pre_tokenizer"]["add_prefix_space"] = false;  // the form in older files
  EXPECT_EQ(tokens(json, "a ab"), (Strings{"a", MARK "ab"}));
  json["model"]["vocab"].push_back({"b" MARK "a", 0});
  EXPECT_EQ(tokens(json, "ab ab"), (Strings{"ab", MARK "ab"}));
  json["pre_tokenizer"]["split"] = false;
  EXPECT_EQ(tokens(json, "ab ab"), (Strings{"a", "b" MARK "a", "b"}));
}

TEST(Normalizer, Precompiled) {
  const auto with = [](const std::string& to, const std::string& text) {
    const Json stage = {{"type", "Precompiled"},
                        {"precompiled_charsmap", to_base64(qkv::testing::charsmap_of_one('X', to))}};
    return normalized(stage, text);
  };
  EXPECT_EQ(with("yz", "aXbX"), "ayzbyz");
  EXPECT_EQ(with("", "aXb"), "ab");
  // A short grapheme goes as a whole: X with an accent. Not one of six bytes and more.
  EXPECT_EQ(with("y",
                 "X\xCC\x81"
                 "b"),
            "yb");
  EXPECT_EQ(with("y", "X\xCC\x81\xCC\x81\xCC\x81"), "y\xCC\x81\xCC\x81\xCC\x81");
  EXPECT_EQ(normalized({{"type", "Precompiled"}, {"precompiled_charsmap", ""}}, "aX"), "aX");
  EXPECT_THROW(normalized({{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}, ""), Error);
}

TEST(Normalizer, SmallStages) {
  const Json replace = {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "_"}};
  EXPECT_EQ(normalized(replace, "a  b c   "), "a_b c_");
  EXPECT_EQ(normalized({{"type", "Replace"}, {"pattern", {{"String", "aa"}}}, {"content", ""}}, "aaab"),
            "ab");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", MARK}}, "a"), MARK "a");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", MARK}}, ""), "");
  EXPECT_EQ(normalized({{"type", "Strip"}}, "\t a b\xC2\xA0"), "a b");
  EXPECT_EQ(normalized({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a "), " a");
  EXPECT_EQ(normalized({{"type", "Strip"}}, "  "), "");
  EXPECT_EQ(normalized({{"type", "StripAccents"}}, "e\xCC\x81\xE0\xA4\x83"), "e");  // spacing marks as well
  EXPECT_EQ(normalized({{"type", "Nmt"}}, "a\x01\tb\xE2\x80\x8B"), "a b ");
  const Json growing = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const Json sequence = {{"type", "Sequence"}, {"normalizers", std::vector<Json>(40, growing)}};
  EXPECT_THROW(normalized(sequence, "a"), Error);
}

TEST(Normalizer, BytesBecomeCharacters) {
  const Json stage = {{"type", "ByteLevel"}};
  EXPECT_EQ(normalized(stage, "Hello 我今天能为你做什么"), "HelloĠæĪĳä»Ĭå¤©èĥ½ä¸ºä½łåģļä»Ģä¹Ī");
  EXPECT_EQ(normalized(stage, ""), "");
  EXPECT_EQ(normalized(stage, "a\n\xC2\xAD"), "aĊÂŃ");
  const std::string text = "a é";
  const AlignedText out = parse_normalizer(JsonField(stage, "normalizer"))->normalize(AlignedText(text, 10));
  EXPECT_EQ(out.view(), "aĠÃ©");
  EXPECT_EQ(out.source_range({1, 3}), (Range{11, 12}));
  EXPECT_EQ(out.source_range({3, 5}), (Range{12, 14}));  // each byte has the whole character's range
  EXPECT_EQ(out.source_range({5, 7}), (Range{12, 14}));
  const auto sequence = [](const std::vector<Json>& stages) -> Json {
    return {{"type", "Sequence"}, {"normalizers", stages}};
  };
  EXPECT_EQ(normalized(sequence({{{"type", "Lowercase"}}, stage}), "É"), "Ã©");
  EXPECT_THROW(normalized(sequence({stage, stage}), "a"), Error);
  EXPECT_THROW(normalized(sequence({stage, sequence({stage})}), "a"), Error);
}

// A byte-level vocabulary that spells bytes before it splits the text.
TEST(Normalizer, ByteLevelTokenizersComeBack) {
  const Json json = Json::parse(R"({"version": "1.0", "normalizer": {"type": "ByteLevel"},
    "pre_tokenizer": {"type": "UnicodeScripts"}, "decoder": {"type": "ByteLevel"},
    "added_tokens": [{"id": 6, "content": "é!", "normalized": true, "special": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1, "Ã": 2, "©": 3, "aĠ": 4, "Â": 5}, "merges": ["a Ġ"]}})");
  const Tokenizer tokenizer = tokenizer_of(json), again = Tokenizer::from_json(tokenizer.to_json());
  for (const Tokenizer& t : {tokenizer, again}) {
    const Encoding e = t.encode("a é");
    EXPECT_EQ(e.ids, (Ids{4, 2, 3}));
    EXPECT_EQ(e.offsets, (std::vector<Range>{{0, 2}, {2, 4}, {2, 4}}));
    EXPECT_EQ(t.decode(e.ids), "a é");
    EXPECT_EQ(t.encode("é!").ids, (Ids{6}));  // the lookup uses its spelling
  }
  EXPECT_EQ(again.to_json(), tokenizer.to_json());
}

TEST(Decoder, SmallStages) {
  EXPECT_EQ(decoded({{"type", "ByteFallback"}}, {"a", "<0xC3>", "<0xA9>", "b"}), "a|\xC3\xA9|b|");
  EXPECT_EQ(decoded({{"type", "ByteFallback"}}, {"<0xC3>", "<0xA9>", "<0xC3>"}),
            "\xEF\xBF\xBD|\xEF\xBF\xBD|\xEF\xBF\xBD|");
  EXPECT_EQ(decoded({{"type", "ByteFallback"}}, {"<0xc3>", "<0xC3"}), "<0xc3>|<0xC3|");
  EXPECT_EQ(decoded({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 2}}, {"  a   ", " "}),
            " a ||");
  EXPECT_EQ(decoded({{"type", "BPEDecoder"}}, {"a</w>", "b", "c</w>"}), "a |b|c|");
}

TEST(RobertaProcessing, PutsSpecialTokensAround) {
  Json json = unigram_json();
  json["post_processor"] = {{"type", "RobertaProcessing"},
                            {"sep", {"c", 7}},
                            {"cls", {"a", 1}},
                            {"trim_offsets", true},
                            {"add_prefix_space", false}};
  const Encoding pair = tokenizer_of(json).encode_pair("ab", "a ab");
  EXPECT_EQ(pair.ids, (Ids{1, 6, 7, 7, 5, 6, 7}));
  EXPECT_EQ(pair.type_ids, Ids(7, 0));
  EXPECT_EQ(pair.offsets[5], (Range{2, 4}));  // without the space
  EXPECT_EQ(tokenizer_of(json).encode("ab").ids, (Ids{1, 6, 7}));
  EXPECT_EQ(Json::parse(tokenizer_of(json).to_json())["post_processor"], json["post_processor"]);
}

// Llama's pipeline, as in its tokenizer.json.
TEST(Llama, InTokenizerJson) {
  const Json json = Json::parse(R"({"version": "1.0",
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "a": 4, "b": 5, "▁a": 6, "▁ab": 7},
      "merges": ["▁ a", "▁a b"]}})");
  const Tokenizer tokenizer = tokenizer_of(json);
  const Ids ids = {7, 6, 1, 2, 3, 3, 5};
  EXPECT_EQ(tokenizer.encode("ab a\xC3\xA9  b").ids, ids);
  EXPECT_EQ(tokenizer.decode(ids), "ab a\xC3\xA9  b");
  EXPECT_EQ(tokenizer_of(Json::parse(tokenizer.to_json())).to_json(), tokenizer.to_json());
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (int round = 0; round < 12; ++round)
    for (const TokenId id : {1, 2, 1, 2, 6, 4}) streamed += stream.add(id);
  streamed += stream.finish();
  std::string expected;
  for (int round = 0; round < 12; ++round) expected += "\xC3\xA9\xC3\xA9 aa";
  EXPECT_EQ(streamed, expected);
}

}  // namespace
}  // namespace qkv::text::unigram_test

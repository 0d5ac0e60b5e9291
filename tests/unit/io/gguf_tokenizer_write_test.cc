// Tokenizers as metadata of GGUF: every key comes back, and what GGUF cannot express is rejected.
// Covers: qkv/io/gguf/tokenizer_pieces.cc
// Covers: qkv/io/gguf/tokenizer_pre.cc
// Covers: qkv/io/gguf/tokenizer_stages.cc
// Covers: qkv/io/gguf/tokenizer_write.cc

#include <gtest/gtest.h>

#include <functional>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/gguf/tokenizer.h"
#include "qkv/io/gguf/tokenizer_pre.h"
#include "qkv/text/sentencepiece_file.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/gguf_tokenizer_testing.h"

namespace qkv::gguf_tokenizer_write_test {
namespace {

using namespace testing;  // NOLINT: the parts of a file

#define EXPECT_ERROR(expression, part) expect_error([&] { static_cast<void>(expression); }, {part})

TEST(GgufTokenizerBack, AllKindsRoundTrip) {
  for (const char* pre : {"gpt-2", "mpt", "starcoder", "qwen2", "gpt-4o", "default", "falcon", "kimi-k2"})
    expect_round_trips(byte_level().set("pre", text_of(pre)).file());
  expect_round_trips(scored().file());
  expect_round_trips(scored().set("add_space_prefix", GgufValue::of(false)).file());
  expect_round_trips(word_pieces().file());
  expect_round_trips(unigram().file());
}

TEST(GgufTokenizerBack, BareBracketsOfOlderFilesStay) {
  Metadata m = word_pieces();
  Strings tokens = m.file().strings("tokenizer.ggml.tokens");
  tokens.back() = "[unused0]";
  m.set("tokens", GgufValue::of_strings(tokens));
  EXPECT_EQ(m.read().tokenizer.id_to_token(8), "[unused0]");
  expect_round_trips(m.file());
}

TEST(GgufTokenizerBack, SpecialTokensAndTemplatesRoundTrip) {
  Metadata m = byte_level();
  m.set("eot_token_id", GgufValue::of_u32(12))
      .set("fim_pre_token_id", GgufValue::of_u32(14))
      .set("padding_token_id", GgufValue::of_u32(3))  // a word: no special token of texts
      .set_full("tokenizer.chat_template", text_of("{{ bos_token }}"));
  expect_round_trips(m.file());
  EXPECT_EQ(encode(m.read(), "o"), (Ids{3}));
  EXPECT_FALSE(m.read().tokenizer.is_special(3));
  EXPECT_EQ(m.read().pad, 3);
  const Json config = Json::parse(m.read().config);
  EXPECT_EQ(config["chat_template"], "{{ bos_token }}");
  EXPECT_EQ(config["eos_token"], "<|im_end|>");
  m.set_full("tokenizer.chat_template.tool_use", text_of("{{ tools }}"))
      .set_full("tokenizer.chat_templates", GgufValue::of_strings({"tool_use"}));
  expect_round_trips(m.file());
}

TEST(GgufTokenizerBack, RowsWithoutTokensAreUnused) {
  const auto out = by_key(gguf_of_tokenizer(byte_level().read(), 18));
  EXPECT_EQ(out.at("tokenizer.ggml.tokens").strings.at(17), "[PAD17]");
  EXPECT_EQ(out.at("tokenizer.ggml.token_type").integers.at(17), 5);
  EXPECT_EQ(out.at("tokenizer.ggml.token_type").integers.at(14), 4);
}

TEST(GgufTokenizerBack, PatternsOfPublishedFilesAreRecognised) {
  const auto name_of = [](const char* stages, bool ignore_merges) -> std::string {
    const Json json = Json::parse(stages);
    const auto patterns = gguf::patterns_of_stages(JsonField(json, "pre_tokenizer"));
    if (!patterns) return "";
    const gguf::PreTokenizer* found = gguf::find_by_patterns(*patterns, ignore_merges);
    return found == nullptr ? "?" : std::string(found->name);
  };
  EXPECT_EQ(name_of(R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true})", false),
            "gpt-2");
  EXPECT_EQ(name_of(R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true})", false), "");
  EXPECT_EQ(name_of(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}]})",
                    false),
            "starcoder");
  EXPECT_EQ(
      name_of(R"({"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
      {"type": "Digits", "individual_digits": false},
      {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false}]})",
              false),
      "falcon");
  const char* llama3 = R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex":
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
      "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})";
  EXPECT_EQ(name_of(llama3, true), "llama-bpe");
  EXPECT_EQ(name_of(llama3, false), "dbrx");
  EXPECT_EQ(name_of(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": " ?[^(\\s|[.,!?…。，、।۔،])]+"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})",
                    false),
            "bloom");
  EXPECT_EQ(name_of(R"({"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated"})", false), "?");
}

TEST(GgufTokenizerBack, ScoresFollowFromTheMergesOfASentencePieceModel) {
  GgufTokenizer from{.tokenizer = text::Tokenizer::from_json(R"({"version": "1.0",
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true, "normalized": false},
                     {"id": 7, "content": "▁▁", "special": false, "normalized": false}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true,
      "vocab": {"<unk>": 0, "a": 1, "b": 2, "▁": 3, "▁a": 4, "ab": 5, "▁ab": 6},
      "merges": ["▁ a", "a b", "▁ ab", "▁a b"]}})")};
  auto out = by_key(gguf_of_tokenizer(from, 0));
  EXPECT_EQ(out.at("tokenizer.ggml.model").strings.at(0), "llama");
  EXPECT_EQ(out.at("tokenizer.ggml.scores").numbers,
            (std::vector<double>{-1000, -1000, -1000, -1000, 0, -1, -2, -1000}));
  EXPECT_EQ(out.at("tokenizer.ggml.token_type").integers, (Integers{2, 1, 1, 1, 1, 1, 1, 4}));
  EXPECT_EQ(out.at("tokenizer.ggml.tokens").strings.at(7), "  ");  // as texts have it
  EXPECT_EQ(out.at("tokenizer.ggml.add_space_prefix").integers.at(0), 1);
}

TEST(GgufTokenizerBack, TokenizersThatGgufCannotExpress) {
  const auto refuse = [](const std::function<void(Json&)>& change, const Metadata& from) {
    Json json = Json::parse(from.read().tokenizer.to_json());
    change(json);
    return gguf_of_tokenizer({.tokenizer = text::Tokenizer::from_json(json.dump())}, 0);
  };
  const Json lower = {{"type", "Lowercase"}};
  EXPECT_ERROR(refuse([&](Json& j) { j["normalizer"] = lower; }, byte_level()),
               "GGUF cannot express this tokenizer: texts go through the normalizer Lowercase");
  EXPECT_NO_THROW(refuse([&](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }, byte_level()));
  EXPECT_ERROR(refuse([&](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; }, byte_level()),
               "its pre-tokenizer does more than cut texts at patterns");
  EXPECT_ERROR(refuse([&](Json& j) { j["pre_tokenizer"] = nullptr; }, byte_level()), "there is none");
  EXPECT_ERROR(refuse(
                   [&](Json& j) {
                     j["pre_tokenizer"] = {{"type", "Sequence"},
                                           {"pretokenizers",
                                            {{{"type", "Split"},
                                              {"pattern", {{"Regex", "x+"}}},
                                              {"behavior", "Isolated"},
                                              {"invert", false}},
                                             j["pre_tokenizer"]}}};
                   },
                   byte_level()),
               "no pre-tokenizer that llama.cpp names cuts texts at x+");
  EXPECT_ERROR(refuse([&](Json& j) { j["model"]["dropout"] = 0.1; }, byte_level()), "dropout");
  // Whole words are no matter where the merges reach them all, and are one where they do not.
  EXPECT_NO_THROW(refuse([&](Json& j) { j["model"]["ignore_merges"] = true; }, byte_level()));
  EXPECT_ERROR(refuse(
                   [&](Json& j) {
                     j["model"]["ignore_merges"] = true;
                     j["model"]["merges"].erase(4);
                   },
                   byte_level()),
               "'gpt-2' does not take whole words past the merges");
  EXPECT_ERROR(refuse(
                   [&](Json& j) {
                     j["pre_tokenizer"] = {{"type", "Whitespace"}};
                   },
                   word_pieces()),
               "its pre-tokenizer is not BERT's");
  EXPECT_ERROR(refuse([&](Json& j) { j["normalizer"]["clean_text"] = false; }, word_pieces()),
               "no clean_text");
  EXPECT_ERROR(refuse([&](Json& j) { j["normalizer"] = nullptr; }, word_pieces()),
               "its normalizer is not BERT's");
  EXPECT_ERROR(refuse([&](Json& j) { j["post_processor"] = nullptr; }, word_pieces()), "[CLS] and [SEP]");
  EXPECT_ERROR(refuse(
                   [&](Json& j) {
                     j["model"] = {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}, {"unk_token", "a"}};
                   },
                   byte_level()),
               "a model 'WordLevel' has no counterpart");
}

TEST(GgufTokenizerBack, SentencePieceModelsOfOtherKinds) {
  const auto refuse = [](const std::function<void(text::SentencePieceFile&)>& change,
                         const char* config = "{}") {
    text::SentencePieceFile model;
    using Type = text::SentencePieceFile::PieceType;
    model.pieces = {
        {"<unk>", 0, Type::kUnknown}, {"a", -1, Type::kNormal}, {"\xE2\x96\x81", -2, Type::kNormal}};
    model.remove_extra_whitespaces = false;
    change(model);
    const ScratchDir folder;
    folder.write("spiece.model", text::serialize_sentencepiece(model));
    folder.write("tokenizer_config.json", config);
    return gguf_of_tokenizer(tokenizer_of_directory(folder.path()), 0);
  };
  using ModelType = text::SentencePieceFile::ModelType;
  EXPECT_NO_THROW(refuse([](auto&) {}));
  EXPECT_ERROR(refuse([](auto& m) { m.model_type = ModelType::kWord; }), "words or characters");
  EXPECT_ERROR(refuse([](auto& m) { m.treat_whitespace_as_suffix = true; }), "uncommon way");
  EXPECT_ERROR(refuse([](auto& m) {
                 m.model_type = ModelType::kBpe;
                 m.remove_extra_whitespaces = true;
               }),
               "of merges normalizes texts");
  EXPECT_ERROR(refuse([](auto& m) { m.pieces[1].type = text::SentencePieceFile::PieceType::kUserDefined; }),
               "the user-defined piece \"a\" stands inside words");
  EXPECT_ERROR(refuse([](auto&) {}, R"({"tokenizer_class": "AlbertTokenizer"})"),
               "AlbertTokenizer changes texts");
}

}  // namespace
}  // namespace qkv::gguf_tokenizer_write_test

// The tokenizers of GGUF files. Ids are computed by hand, or are those of llama.cpp.
// Covers: qkv/io/gguf/tokenizer.cc
// Covers: qkv/io/gguf/tokenizer_vocab.cc
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/gguf/tokenizer.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/gguf_tokenizer_testing.h"

namespace qkv::gguf_tokenizer_test {
namespace {

using namespace testing;  // NOLINT: the parts of a file

#define EXPECT_ERROR(expression, part) expect_error([&] { static_cast<void>(expression); }, {part})

TEST(GgufTokenizer, ByteLevelMergesAreCutByTheNamedPreTokenizer) {
  const GgufTokenizer t = byte_level().read();
  EXPECT_EQ(encode(t, "hello hello"), (Ids{8, 9}));
  EXPECT_EQ(encode(t, "<|im_start|>hello<tool> h12"), (Ids{12, 8, 14, 4, 0, 10, 11}));
  EXPECT_EQ(t.tokenizer.decode(Ids{12, 8, 9}, true), "hello hello");
  EXPECT_EQ(t.bos, 12);
  EXPECT_EQ(t.eos, (Integers{13}));
  EXPECT_EQ(t.pad, -1);
  EXPECT_EQ(t.warning, "");
  // Both flags put a token around the text.
  const GgufTokenizer around =
      byte_level().set("add_bos_token", GgufValue::of(true)).set("add_eos_token", GgufValue::of(true)).read();
  EXPECT_EQ(encode(around, "hello"), (Ids{12, 8, 13}));
}

TEST(GgufTokenizer, PreTokenizersDecideWhetherMergesAreIgnored) {
  // Without its last merge, "hello" is reached only as a whole.
  const GgufValue merges = GgufValue::of_strings({"h e", "l l", "he ll"});
  EXPECT_EQ(encode(byte_level().set("merges", merges).read(), "hello"), (Ids{7, 3}));
  EXPECT_EQ(encode(byte_level().set("merges", merges).set("pre", text_of("llama-bpe")).read(), "hello"),
            (Ids{12, 8}));  // llama-bpe also begins texts with a token
}

TEST(GgufTokenizer, AMissingPreTokenizerIsTheDefaultAndIsTold) {
  const GgufTokenizer t = byte_level().erase("tokenizer.ggml.pre").read();
  EXPECT_NE(t.warning.find("tokenizer.ggml.pre"), std::string::npos);
  EXPECT_EQ(encode(t, "hello hello"), (Ids{8, 9}));
}

TEST(GgufTokenizer, ScoresDecideMergesAndUnknownCharactersAreBytes) {
  const GgufTokenizer t = scored().read();
  // "▁ab": the highest score joins "▁a" first, so "ab" cannot be made.
  EXPECT_EQ(encode(t, "ab"), (Ids{1, 259, 263}));
  EXPECT_EQ(encode(t, "bab"), (Ids{1, 261, 263, 260}));
  EXPECT_EQ(encode(t, "\xC3\xA9"), (Ids{1, 261, 3 + 0xC3, 3 + 0xA9}));
  // A text after a token that it spells out begins with a space, too.
  EXPECT_EQ(encode(t, "b<tool>b"), (Ids{1, 261, 263, 264, 261, 263}));
  EXPECT_EQ(t.eos, (Integers{2}));
  const GgufTokenizer bare = scored()
                                 .set("add_space_prefix", GgufValue::of(false))
                                 .set("add_bos_token", GgufValue::of(false))
                                 .read();
  EXPECT_EQ(encode(bare, "ab ab"), (Ids{260, 259, 263}));
}

TEST(GgufTokenizer, WordPiecesLoseTheirMarks) {
  const GgufTokenizer t = word_pieces().read();
  EXPECT_EQ(encode(t, "Hello WORLD!"), (Ids{2, 4, 5, 6, 7, 3}));
  EXPECT_EQ(encode(t, "llo"), (Ids{2, 1, 3}));
  EXPECT_EQ(t.tokenizer.id_to_token(5), "##llo");
  EXPECT_EQ(t.tokenizer.decode(Ids{4, 5, 6}), "hello world");
  const GgufTokenizer cased = word_pieces().set("normalizer.lowercase", GgufValue::of(false)).read();
  EXPECT_EQ(encode(cased, "hello HE"), (Ids{2, 4, 5, 1, 3}));
}

TEST(GgufTokenizer, UnigramsTakeTheMostProbablePieces) {
  const GgufTokenizer t = unigram().read();
  EXPECT_EQ(encode(t, "ab  ab "), (Ids{7, 7, 1}));
  EXPECT_EQ(encode(t, "a\xC3\xA9\xC3\xA9"), (Ids{3, 4, 2, 1}));
  EXPECT_EQ(encode(t, "b<extra_id_0>"), (Ids{3, 5, 8, 1}));
  EXPECT_EQ(t.pad, 0);
}

TEST(GgufTokenizer, FairseqsOrderOfIdsIsKept) {
  Metadata m("t5");
  m.set("tokens", GgufValue::of_strings({"<s>", "<pad>", "</s>", "<unk>", "\xE2\x96\x81", "a", "<mask>"}))
      .set("scores", GgufValue::of_f32s({0, 0, 0, 0, -1, -2, 0}))
      .set("token_type", GgufValue::of_integers(kIntegers, {3, 3, 3, 2, 1, 1, 3}))
      .set("bos_token_id", GgufValue::of_u32(0))
      .set("eos_token_id", GgufValue::of_u32(2))
      .set("unknown_token_id", GgufValue::of_u32(3))
      .set("padding_token_id", GgufValue::of_u32(1))
      .set("mask_token_id", GgufValue::of_u32(6))
      .set("add_space_prefix", GgufValue::of(true))
      .set("add_bos_token", GgufValue::of(true));
  const GgufTokenizer t = m.read();
  EXPECT_EQ(encode(t, "aq<mask>"), (Ids{0, 4, 5, 3, 6, 2}));
  EXPECT_NE(t.config.find("XLMRobertaTokenizer"), std::string::npos);
}

TEST(GgufTokenizer, EndsOfTextAreThoseThatLlamaCppKnows) {
  const Strings tokens = {"a", "<|end|>", "<|return|>", "<|call|>", "</s>", "<|eot_id|>", "x"};
  Metadata m("gpt2");
  m.set("pre", text_of("gpt-4o"))
      .set("tokens", GgufValue::of_strings(tokens))
      .set("token_type", GgufValue::of_integers(kIntegers, {1, 3, 3, 3, 1, 3, 3}))
      .set("merges", GgufValue::of_strings({}))
      .set("eom_token_id", GgufValue::of_u32(6))
      .set("eos_token_id", GgufValue::of_u32(2));
  // <|end|> ends a message where a call may follow, and a word "</s>" ends nothing.
  EXPECT_EQ(m.read().eos, (Integers{2, 6, 3, 5}));
}

TEST(GgufTokenizer, WithoutTypesTheTokensAroundATextAreSpecialAllTheSame) {
  const GgufTokenizer t = scored().erase("tokenizer.ggml.token_type").read();
  EXPECT_EQ(encode(t, "b"), (Ids{1, 261, 263}));
  EXPECT_EQ(t.tokenizer.decode(Ids{1, 261, 263}, true), "b");
}

TEST(GgufTokenizer, SpecialIdsBeyondTheVocabularyAreIgnored) {
  const GgufTokenizer t = byte_level().set("padding_token_id", GgufValue::of_u32(0xFFFFFFFF)).read();
  EXPECT_EQ(t.pad, -1);
}

TEST(GgufTokenizerRefusals, MetadataThatDescribesNoTokenizer) {
  EXPECT_ERROR(Metadata("no_vocab").read(),
               "a.gguf: tokenizer.ggml.model: 'no_vocab': the file has no tokenizer");
  EXPECT_ERROR(Metadata("rwkv").read(), "'rwkv' is not supported (known: llama, gpt2, bert, t5)");
  EXPECT_ERROR(byte_level().set("pre", text_of("gpt-9")).read(),
               "tokenizer.ggml.pre: 'gpt-9' is no pre-tokenizer that qkv knows (default, gpt-2, ");
  EXPECT_ERROR(byte_level().erase("tokenizer.ggml.tokens").read(), "tokenizer.ggml.tokens");
  EXPECT_ERROR(byte_level().erase("tokenizer.ggml.merges").read(), "tokenizer.ggml.merges");
  EXPECT_ERROR(byte_level().set("merges", GgufValue::of_strings({"he"})).read(),
               "tokenizer.ggml.merges[0]: expected \"left right\"");
  EXPECT_ERROR(byte_level().set("merges", GgufValue::of_strings({"h e", "h q"})).read(),
               "tokenizer.ggml.merges[1]: \"q\" is not in the vocabulary");
  EXPECT_ERROR(byte_level().set("merges", GgufValue::of_strings({"h h"})).read(),
               "tokenizer.ggml.merges[0]: \"hh\" is not in the vocabulary");
  EXPECT_ERROR(byte_level().set("token_type", GgufValue::of_integers(kIntegers, {1})).read(),
               "tokenizer.ggml.token_type: 1 types of 16 tokens");
  EXPECT_ERROR(byte_level().set("token_type", GgufValue::of_integers(kIntegers, Integers(16, 7))).read(),
               "tokenizer.ggml.token_type[0]: 7 is no type");
  EXPECT_ERROR(
      byte_level().erase("tokenizer.ggml.bos_token_id").set("add_bos_token", GgufValue::of(true)).read(),
      "tokenizer.ggml.add_bos_token is true, but the file names no bos_token");
  EXPECT_ERROR(scored().erase("tokenizer.ggml.scores").read(), "tokenizer.ggml.scores is missing");
  EXPECT_ERROR(scored().set("scores", GgufValue::of_f32s({1})).read(), "1 scores of 265 tokens");
  EXPECT_ERROR(scored().set("scores", GgufValue::of_f32s(std::vector<double>(265, NAN))).read(),
               "tokenizer.ggml.scores[0]: not a finite number");
  EXPECT_ERROR(
      unigram().set("precompiled_charsmap", GgufValue::of_integers(GgufValue::Type::u8, {9, 9})).read(),
      "not a compiled map of characters");
  EXPECT_ERROR(unigram().set("precompiled_charsmap", text_of("x")).read(),
               "tokenizer.ggml.precompiled_charsmap: expected bytes");
  EXPECT_ERROR(word_pieces().erase("tokenizer.ggml.seperator_token_id").read(),
               "tokenizer.ggml.add_sep_token is true, but the file names no sep_token");
}

TEST(GgufTokenizerRefusals, TokensThatAreNone) {
  const auto with = [](Metadata m, size_t at, const std::string& token) {
    Strings tokens = m.file().strings("tokenizer.ggml.tokens");
    tokens[at] = token;
    return m.set("tokens", GgufValue::of_strings(tokens));
  };
  EXPECT_ERROR(with(byte_level(), 11, "\xFF").read(), "tokenizer.ggml.tokens[11]: not UTF-8");
  EXPECT_ERROR(with(byte_level(), 11, "1").read(), "tokenizer.ggml.tokens[11]: \"1\" is token 10 already");
  EXPECT_EQ(with(byte_level(), 11, "").read().tokenizer.id_to_token(11), "[EMPTY_11]");
  EXPECT_ERROR(byte_level().set_full("tokenizer.chat_template", text_of("\xFF")).read(),
               "tokenizer.chat_template");
  EXPECT_ERROR(word_pieces().set("pre", text_of("\xFF")).read(), "tokenizer.ggml.pre");
  EXPECT_ERROR(with(scored(), 5, "xyz").read(), "tokenizer.ggml.tokens[5]: \"xyz\" is of type byte");
  EXPECT_ERROR(with(word_pieces(), 6, "\xE2\x96\x81").read(), "which is empty or another token already");
}

// Hostile metadata is read or refused, and what is read encodes and is written.
TEST(GgufTokenizerRefusals, ChangedMetadataIsReadOrRefused) {
  std::mt19937 rng(2026);
  const auto change = [&](GgufValue& value) {
    if (rng() % 8 == 0) value.is_array = !value.is_array;
    if (rng() % 8 == 0) value.type = static_cast<GgufValue::Type>(rng() % 13);
    if (!value.integers.empty())
      value.integers[rng() % value.integers.size()] = static_cast<int64_t>(rng() % 9) - 1;
    if (!value.numbers.empty())
      value.numbers[rng() % value.numbers.size()] = rng() % 3 == 0 ? INFINITY : -1.0;
    if (value.strings.empty()) return;
    std::string& text = value.strings[rng() % value.strings.size()];
    if (rng() % 4 == 0) text = value.strings[rng() % value.strings.size()];
    if (!text.empty()) text[rng() % text.size()] = static_cast<char>(rng());
  };
  size_t read = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    Metadata m = i % 4 == 0 ? byte_level() : i % 4 == 1 ? scored() : i % 4 == 2 ? word_pieces() : unigram();
    Gguf file = m.file();
    const size_t at = rng() % file.metadata.size();
    if (rng() % 8 == 0)
      file.metadata.erase(file.metadata.begin() + static_cast<std::ptrdiff_t>(at));
    else
      change(file.metadata[at].second);
    try {
      const GgufTokenizer t = tokenizer_of_gguf(file);
      encode(t, "hello <tool> ab 12");
      ++read;
      gguf_of_tokenizer(t, 0);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 500U);
  EXPECT_GT(refused, 500U);
}

void expect_cases(const GgufTokenizer& from, const std::string& file) {
  const Json document = parse_json(read_file(file), file);
  ASSERT_GT(document["cases"].size(), 0U);
  for (const Json& c : document["cases"])
    EXPECT_EQ(from.tokenizer.encode(c["text"].get<std::string>(), false).ids, c["ids"].get<Ids>())
        << c["text"];
}

TEST(GgufTokenizerPublished, VocabulariesGiveTheIdsOfLlamaCpp) {
  const char* reference = std::getenv("QKV_REFERENCE");
  if (reference == nullptr) GTEST_SKIP() << "QKV_REFERENCE does not name a folder with tokenizers/";
  const std::filesystem::path root(reference), files = root / "../data/tokenizers/llama_cpp_vocab";
  const auto cases = [&](const char* name) { return (root / "tokenizers/cases" / name).string(); };
  for (const auto& [file, of] : {std::pair("ggml-vocab-gpt-2.gguf", "llamacpp_gpt2.json"),
                                 std::pair("ggml-vocab-bert-bge.gguf", "llamacpp_bert_uncased.json")}) {
    const Gguf gguf = read_gguf((files / file).string());
    expect_cases(tokenizer_of_gguf(gguf), cases(of));
    expect_round_trips(gguf);
  }
  // Vocabularies that are there in other forms, with llama.cpp's names of their pre-tokenizers.
  for (const auto& [name, pre] : {std::pair("falcon", "falcon"), std::pair("starcoder", "starcoder"),
                                  std::pair("deepseek_llm", "deepseek-llm"), std::pair("mpt", "mpt"),
                                  std::pair("llama3", "llama-bpe")}) {
    const std::string folder = (root / "tokenizers/vocab" / name).string();
    const Json vocab = parse_json(read_file(folder + "/vocab.json"), folder);
    Strings tokens(vocab.size());
    for (const auto& [token, id] : vocab.items()) tokens.at(id.get<size_t>()) = token;
    Integers types(tokens.size(), 1);
    if (const std::string file = folder + "/token_types.json"; file_exists(file)) {
      const Json json = parse_json(read_file(file), file);
      for (const auto& [id, type] : json["token_type"].items())
        types.at(std::stoul(id)) = type.get<int64_t>();
    }
    Strings merges;
    const std::string text = read_file(folder + "/merges.txt");
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      if (const std::string line = text.substr(at, end - at); !line.empty() && !line.starts_with("#version"))
        merges.push_back(line);
      at = end + 1;
    }
    Metadata m("gpt2");
    m.set("pre", text_of(pre))
        .set("tokens", GgufValue::of_strings(std::move(tokens)))
        .set("token_type", GgufValue::of_integers(kIntegers, std::move(types)))
        .set("merges", GgufValue::of_strings(std::move(merges)));
    expect_cases(m.read(), cases(("llamacpp_" + std::string(name) + ".json").c_str()));
    expect_round_trip(m.file(), m.read());
  }
  // Llama's SentencePiece model, by way of the metadata that qkv writes.
  Gguf llama{.path = "llama"};
  llama.metadata = gguf_of_tokenizer(tokenizer_of_directory((root / "tokenizers/vocab/llama").string()), 0);
  expect_cases(tokenizer_of_gguf(llama), cases("llamacpp_llama.json"));
}

}  // namespace
}  // namespace qkv::gguf_tokenizer_test

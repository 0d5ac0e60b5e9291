// Small vocabularies of each kind as GGUF has them, and comparisons with what is written for them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "qkv/io/gguf/tokenizer.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::testing {

using Ids = std::vector<text::TokenId>;
using Strings = std::vector<std::string>;
using Integers = std::vector<int64_t>;
using Keys = std::vector<std::pair<std::string, GgufValue>>;

inline constexpr auto kIntegers = GgufValue::Type::i32;

// A file of these keys below "tokenizer.ggml.".
class Metadata {
 public:
  explicit Metadata(std::string_view model) {
    file_.path = "a.gguf";
    set("model", GgufValue::of(model));
  }
  Metadata& set(const std::string& key, GgufValue value) {
    return set_full("tokenizer.ggml." + key, std::move(value));
  }
  Metadata& set_full(const std::string& key, GgufValue value) {
    erase(key);
    file_.metadata.emplace_back(key, std::move(value));
    return *this;
  }
  Metadata& erase(const std::string& key) {
    std::erase_if(file_.metadata, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }
  const Gguf& file() const { return file_; }
  GgufTokenizer read() const { return tokenizer_of_gguf(file_); }

 private:
  Gguf file_;
};

inline GgufValue text_of(std::string_view text) {
  return GgufValue::of(text);
}

// "hello" in merges, two control tokens and one that its user defined.
inline Metadata byte_level() {
  Metadata m("gpt2");
  m.set("pre", text_of("gpt-2"))
      .set("tokens", GgufValue::of_strings({"h", "e", "l", "o", "\xC4\xA0", "he", "ll", "hell", "hello",
                                            "\xC4\xA0hello", "1", "2", "<|im_start|>", "<|im_end|>", "<tool>",
                                            "\xC4\x8A"}))
      .set("token_type", GgufValue::of_integers(kIntegers, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 4, 1}))
      .set("merges", GgufValue::of_strings({"h e", "l l", "he ll", "hell o", "\xC4\xA0 hello"}))
      .set("bos_token_id", GgufValue::of_u32(12))
      .set("eos_token_id", GgufValue::of_u32(13));
  return m;
}

// Bytes, and "ab" with and without a space before it.
inline Metadata scored() {
  Strings tokens = {"<unk>", "<s>", "</s>"};
  std::vector<double> scores(3, 0.0);
  Integers types = {2, 3, 3};
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(fmt::format("<0x{:02X}>", b));
    scores.push_back(0);
    types.push_back(6);
  }
  double score = -1;
  for (const char* token : {"\xE2\x96\x81"
                            "a",
                            "ab", "\xE2\x96\x81", "a", "b", "<tool>"}) {
    tokens.emplace_back(token);
    scores.push_back(score--);
    types.push_back(token == std::string_view("<tool>") ? 4 : 1);
  }
  Metadata m("llama");
  m.set("pre", text_of("default"))
      .set("tokens", GgufValue::of_strings(tokens))
      .set("scores", GgufValue::of_f32s(scores))
      .set("token_type", GgufValue::of_integers(kIntegers, types));
  return m;
}

inline Metadata word_pieces() {
  Metadata m("bert");
  m.set("pre", text_of("jina-v1"))
      .set("tokens", GgufValue::of_strings({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\xE2\x96\x81he", "llo",
                                            "\xE2\x96\x81world", "\xE2\x96\x81!", "\xE2\x96\x81[unused0]"}))
      .set("token_type", GgufValue::of_integers(kIntegers, {3, 3, 3, 3, 1, 1, 1, 1, 1}))
      .set("unknown_token_id", GgufValue::of_u32(1))
      .set("cls_token_id", GgufValue::of_u32(2))
      .set("seperator_token_id", GgufValue::of_u32(3))
      .set("padding_token_id", GgufValue::of_u32(0));
  return m;
}

inline Metadata unigram() {
  Metadata m("t5");
  m.set("pre", text_of("default"))
      .set("tokens", GgufValue::of_strings({"<pad>", "</s>", "<unk>", "\xE2\x96\x81", "a", "b", "ab",
                                            "\xE2\x96\x81"
                                            "ab",
                                            "<extra_id_0>"}))
      .set("scores", GgufValue::of_f32s({0, 0, 0, -2, -3, -3, -4, -5, 0}))
      .set("token_type", GgufValue::of_integers(kIntegers, {3, 3, 2, 1, 1, 1, 1, 1, 4}))
      .set("add_space_prefix", GgufValue::of(true))
      .set("remove_extra_whitespaces", GgufValue::of(true));
  return m;
}

inline Ids encode(const GgufTokenizer& from, std::string_view text) {
  return from.tokenizer.encode(text).ids;
}

inline std::map<std::string, GgufValue> by_key(const Keys& keys) {
  return {keys.begin(), keys.end()};
}

// Every key of the file comes back unchanged.
inline void expect_round_trip(const Gguf& file, const GgufTokenizer& read) {
  const auto out = by_key(gguf_of_tokenizer(read, file.strings("tokenizer.ggml.tokens").size()));
  for (const auto& [key, value] : file.metadata) {
    if (!key.starts_with("tokenizer.") || key == "tokenizer.ggml.token_type_count") continue;
    const auto it = out.find(key);
    ASSERT_NE(it, out.end()) << key;
    EXPECT_EQ(it->second.type, value.type) << key;
    EXPECT_EQ(it->second.is_array, value.is_array) << key;
    EXPECT_EQ(it->second.integers, value.integers) << key;
    EXPECT_EQ(it->second.numbers, value.numbers) << key;
    EXPECT_EQ(it->second.strings, value.strings) << key;
  }
}

// The same, and once more through a saved directory.
inline void expect_round_trips(const Gguf& file) {
  const GgufTokenizer read = tokenizer_of_gguf(file);
  expect_round_trip(file, read);
  const ScratchDir folder;
  read.tokenizer.save(folder.path());
  folder.write("tokenizer_config.json", read.config);
  GgufTokenizer loaded = tokenizer_of_directory(folder.path());
  loaded.eos = read.eos;
  expect_round_trip(file, loaded);
  for (const char* text : {"ab hello", "Hello<tool>  12", "<|im_start|>a</s>b"})
    EXPECT_EQ(loaded.tokenizer.encode(text).ids, read.tokenizer.encode(text).ids);
}

}  // namespace qkv::testing

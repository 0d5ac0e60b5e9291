// Cases of other tokenizers' behaviour from $QKV_REFERENCE/tokenizers, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/text/tokenizer.h"
#include "qkv/text/unicode.h"

namespace qkv::text {

inline constexpr const char* kNoReference = "QKV_REFERENCE does not name a folder with tokenizers/";

// One file of cases and the vocabulary that they were made with.
class ReferenceCases {
 public:
  using Json = nlohmann::json;

  explicit ReferenceCases(const std::string& name) {
    const char* reference = std::getenv("QKV_REFERENCE");
    if (reference == nullptr || *reference == '\0') return;
    root_ = std::filesystem::path(reference) / "tokenizers";
    document_ = Json::parse(read_file((root_ / "cases" / (name + ".json")).string()));
    folder_ = std::filesystem::path(testing::TempDir()) / ("qkv_" + name + "_" + std::to_string(::getpid()));
  }
  ~ReferenceCases() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  ReferenceCases(const ReferenceCases&) = delete;
  ReferenceCases& operator=(const ReferenceCases&) = delete;

  bool found() const { return !root_.empty(); }

  // The vocabulary, with `config` as its tokenizer_config.json.
  Tokenizer load(const Json& config) const {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    for (const auto& file : std::filesystem::directory_iterator(vocabulary()))
      std::filesystem::create_symlink(file.path(), folder_ / file.path().filename());
    write_file_atomically((folder_ / "tokenizer_config.json").string(), config.dump());
    return Tokenizer::load(folder_.string());
  }

  std::filesystem::path vocabulary() const {
    return root_ / document_["meta"]["vocab_dir"].get<std::string>();
  }
  // Scratch folder, removed at the end.
  const std::filesystem::path& folder() const { return folder_; }

  // Compares ids without special tokens, and the texts that they decode to if those are stored.
  void expect_ids(const Tokenizer& tokenizer) const {
    ASSERT_GT(document_["cases"].size(), 0U);
    for (const Json& c : document_["cases"]) expect_text(tokenizer, c, false);
    expect_streams(tokenizer);
  }

  // The special tokens by the names of tokenizer_config.json.
  Json special_tokens() const { return document_["meta"]["special_tokens"]; }

  // Compares with the library's results for its own .model file.
  void expect_library() const {
    const Tokenizer loaded =
        Tokenizer::load((root_ / document_["meta"]["model"].get<std::string>()).string());
    loaded.save(folder_.string());
    for (const Tokenizer& tokenizer : {loaded, Tokenizer::load(folder_.string())}) {
      ASSERT_GT(document_["cases"].size(), 0U);
      for (const Json& c : document_["cases"]) expect_text(tokenizer, c, false);
    }
    expect_streams(loaded);
  }

  // Streaming token by token gives the same text.
  void expect_streams(const Tokenizer& tokenizer) const {
    for (const Json& c : document_["cases"]) {
      const auto ids = c["ids"].get<std::vector<TokenId>>();
      std::string streamed;
      StreamDecoder stream(tokenizer, false);
      for (const TokenId id : ids) streamed += stream.add(id);
      EXPECT_EQ(streamed + stream.finish(), tokenizer.decode(ids));
    }
    expect_continuations(tokenizer);
  }

  // At every split, the second part adds the text of the whole without that of the first part, streamed or
  // at once.
  void expect_continuations(const Tokenizer& tokenizer) const {
    for (const Json& c : document_["cases"]) {
      const auto ids = c["ids"].get<std::vector<TokenId>>();
      const std::string whole = tokenizer.decode(ids, true);
      if (whole.find("\xEF\xBF\xBD") != std::string::npos)
        continue;  // the split is inside a character, which may give text or a replacement
      const size_t step = std::max<size_t>(1, ids.size() / 8);
      for (size_t cut = 0; cut <= ids.size(); cut += step) {
        const auto context = std::span(ids).first(cut), added = std::span(ids).subspan(cut);
        const std::string text = tokenizer.decode_after(context, added);
        const std::string before = tokenizer.decode(context, true);
        if (find_invalid_utf8(before) == std::string::npos && whole.starts_with(before)) {
          EXPECT_EQ(before + text, whole) << "cut at " << cut;
        }
        std::string streamed;
        StreamDecoder stream(tokenizer, true, context);
        for (const TokenId id : added) streamed += stream.add(id);
        EXPECT_EQ(streamed + stream.finish(), text) << "of " << whole << ", cut at " << cut;
      }
    }
  }

  // Compares ids without and with special tokens, and the texts that they decode to, without and with
  // clean-up. Repeats everything with the saved tokenizer.
  void expect_texts(Json config = Json::object()) const {
    for (const bool clean_up : {false, true}) {
      config["clean_up_tokenization_spaces"] = clean_up;
      const Tokenizer loaded = load(config);
      loaded.save(folder_.string() + "/saved");
      for (const Tokenizer& tokenizer : {loaded, Tokenizer::load(folder_.string() + "/saved")}) {
        ASSERT_GT(document_["cases"].size(), 0U);
        for (const Json& c : document_["cases"]) expect_text(tokenizer, c, clean_up);
      }
    }
  }

  // Compares pairs of texts, and padded texts. Leaves out truncated ones: here the caller decides about
  // lengths.
  void expect_pairs(const Json& config = Json::object()) const {
    const Tokenizer tokenizer = load(config);
    const auto pad = document_["meta"]["special_ids"]["pad_token"].get<TokenId>();
    for (const Json& c : document_["pairs"]) {
      const auto text = c["text"].get<std::string>();
      const std::optional<std::string> second =
          c.contains("text_pair") ? std::optional(c["text_pair"].get<std::string>()) : std::nullopt;
      Encoding encoding = second ? tokenizer.encode_pair(text, *second) : tokenizer.encode(text);
      if (c.contains("max_length")) {
        const auto length = c["max_length"].get<size_t>();
        encoding = tokenizer.encode_within({.max_length = length}, text, second);
        const auto mask = c["attention_mask"].get<std::vector<int>>();
        EXPECT_EQ(std::ssize(encoding.ids), std::count(mask.begin(), mask.end(), 1)) << c["text"];
        text::pad(encoding, length, {.on_left = mask[0] == 0, .id = pad});
      }
      EXPECT_EQ(encoding.ids, c["input_ids"].get<std::vector<TokenId>>()) << c["text"];
      if (c.contains("token_type_ids")) {
        EXPECT_EQ(encoding.type_ids, c["token_type_ids"].get<std::vector<TokenId>>()) << c["text"];
      }
    }
    EXPECT_GE(document_["pairs"].size(), 12U);
  }

 private:
  static void expect_text(const Tokenizer& tokenizer, const Json& c, bool clean_up) {
    const auto text = c["text"].get<std::string>();
    const auto ids = c["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer.encode(text, false).ids, ids) << c["text"];
    if (c.contains("ids_special")) {
      EXPECT_EQ(tokenizer.encode(text).ids, c["ids_special"].get<std::vector<TokenId>>()) << c["text"];
    }
    const char* decoded = clean_up ? "decoded_cleanup" : "decoded";
    if (c.contains(decoded)) {
      EXPECT_EQ(tokenizer.decode(ids), c[decoded].get<std::string>()) << c["text"];
    }
    if (!clean_up && c.contains("decoded_special_skipped")) {
      EXPECT_EQ(tokenizer.decode(ids, true), c["decoded_special_skipped"].get<std::string>()) << c["text"];
    }
  }

  Json document_;
  std::filesystem::path root_, folder_;
};

}  // namespace qkv::text

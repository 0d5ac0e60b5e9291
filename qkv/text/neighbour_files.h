// The small files beside a vocabulary: tokenizer_config.json, special_tokens_map.json, added_tokens.json.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/added_tokens.h"

namespace qkv::text {

// The tokens that these files add to a vocabulary.
class LegacyTokens {
 public:
  explicit LegacyTokens(const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), next_id_(static_cast<TokenId>(vocabulary.id_limit())) {}

  // A name in special_tokens_map.json or tokenizer_config.json: a string or an object with "content".
  void add_special(const JsonField& field) {
    if (field.json().is_object()) return add(parse_added_token(field, {}));
    add_special(field.string());
  }
  void add_special(const std::string& content) {
    AddedToken token;
    token.content = content;
    add(std::move(token));
  }

  // "added_tokens_decoder": {"50256": {"content": ...}}
  void add_decoder(const JsonField& field) {
    for (auto it = field.object().begin(); it != field.object().end(); ++it) {
      AddedToken token = parse_added_token(field[it.key()], {});
      token.id = parse_id(it.key(), field);
      add(std::move(token));
    }
  }

  // added_tokens.json: {"token": id}
  void add_list(const JsonField& field) {
    for (auto it = field.object().begin(); it != field.object().end(); ++it) {
      AddedToken token;
      token.content = it.key();
      token.special = false;
      token.id = static_cast<TokenId>(field[it.key()].integer(0, kLargestTokenId));
      add(std::move(token));
    }
  }

  // Returns the tokens; tokens that no file gives an id follow all others.
  std::vector<AddedToken> take() {
    for (AddedToken& token : tokens_) {
      if (token.id == kNoToken) token.id = vocabulary_.find(token.content);
      next_id_ = std::max(next_id_, token.id + 1);
    }
    for (AddedToken& token : tokens_) {
      if (token.id == kNoToken) token.id = next_id_++;
    }
    return std::move(tokens_);
  }

  // Makes the token strip the white space before it.
  void strip_before(const std::string& content) {
    for (AddedToken& known : tokens_) known.lstrip |= known.content == content;
  }

  // The first file that names a token determines its flags; a later one may still make it special.
  void add(AddedToken token) {
    if (token.content.empty()) return;
    for (AddedToken& known : tokens_) {
      if (known.content != token.content) continue;
      known.special |= token.special;
      if (known.id == kNoToken) known.id = token.id;
      return;
    }
    tokens_.push_back(std::move(token));
  }

 private:
  static TokenId parse_id(const std::string& digits, const JsonField& field) {
    const bool number =
        !digits.empty() && digits.size() <= 8 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!number || std::stoi(digits) > kLargestTokenId) field.refuse("ids as keys");
    return static_cast<TokenId>(std::stoi(digits));
  }

  const Vocabulary& vocabulary_;
  TokenId next_id_;
  std::vector<AddedToken> tokens_;
};

// The small files of a directory.
class NeighbourFiles {
 public:
  using Read = std::function<std::optional<std::string>(const std::string& name)>;

  explicit NeighbourFiles(const std::string& directory)
      : NeighbourFiles(directory, [&](const std::string& name) -> std::optional<std::string> {
          const std::string path = directory + "/" + name;
          return file_exists(path) ? std::optional(read_file(path)) : std::nullopt;
        }) {}

  // Uses `read` to get the contents of each file; `place` names the directory in errors.
  NeighbourFiles(const std::string& place, const Read& read)
      : config_file_(place + "/tokenizer_config.json"),
        map_file_(place + "/special_tokens_map.json"),
        added_file_(place + "/added_tokens.json"),
        config_(parse(read("tokenizer_config.json"), config_file_)),
        map_(parse(read("special_tokens_map.json"), map_file_)),
        added_(parse(read("added_tokens.json"), added_file_)) {}

  JsonField config() const { return {config_, config_file_}; }

  // True if tokenizer_config.json has the flags of all tokens.
  bool has_flags() const { return config().find("added_tokens_decoder").has_value(); }

  // The token with the name `name` ("cls_token"); `otherwise` if no file has it.
  std::string named(std::string_view name, const std::string& otherwise) const {
    for (const JsonField& field : {config(), JsonField(map_, map_file_)}) {
      if (const auto token = field.find(name))
        return token->json().is_object() ? (*token)["content"].string() : token->string();
    }
    return otherwise;
  }

  // Adds all tokens that the files name.
  void add_to(LegacyTokens& tokens) const {
    if (const auto decoder = config().find("added_tokens_decoder")) tokens.add_decoder(*decoder);
    add_named(config(), tokens);
    add_named({map_, map_file_}, tokens);
    tokens.add_list({added_, added_file_});
  }

 private:
  // Returns an empty object if there is no such file.
  static Json parse(const std::optional<std::string>& contents, const std::string& path) {
    return contents ? parse_json(*contents, path) : Json::object();
  }

  static void add_named(const JsonField& field, LegacyTokens& tokens) {
    static constexpr std::string_view kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                  "pad_token", "cls_token", "mask_token"};
    for (const std::string_view name : kNames) {
      if (const auto token = field.find(name)) tokens.add_special(*token);
    }
    if (const auto more = field.find("additional_special_tokens")) {
      for (size_t i = 0; i < more->size(); ++i) tokens.add_special(more->at(i));
    }
  }

  std::string config_file_, map_file_, added_file_;
  Json config_, map_, added_;
};

// The effect of clean_up_tokenization_spaces on decoded text, as decoders of tokenizer.json.
inline Json clean_up_stages() {
  static constexpr std::string_view kReplacements[][2] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  Json decoders = Json::array({{{"type", "Fuse"}}});
  for (const auto& [from, to] : kReplacements)
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}});
  return decoders;
}

}  // namespace qkv::text

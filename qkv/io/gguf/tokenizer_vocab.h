// The metadata tokenizer.* of a GGUF file, checked, with the defaults of llama.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "qkv/io/container/gguf.h"
#include "qkv/text/vocabulary.h"

namespace qkv::gguf {

// The codes of tokenizer.ggml.token_type; 0 (undefined) counts as normal.
enum class TokenType : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

// True for tokens that a text may spell out.
constexpr bool is_spelt_out(TokenType type) {
  return type == TokenType::unknown || type == TokenType::control || type == TokenType::user_defined;
}

// tokenizer.ggml.model.
enum class TokenizerModel : uint8_t { llama, gpt2, bert, t5 };

// A special token's name in tokenizer_config.json and its keys in GGUF.
struct SpecialName {
  std::string_view name;          // "bos_token"
  std::string_view key;           // "tokenizer.ggml.bos_token_id"
  std::string_view old_key = {};  // the name in older files
};
inline constexpr SpecialName kSpecialNames[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},
    {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"eot_token", "tokenizer.ggml.eot_token_id"},
    {"eom_token", "tokenizer.ggml.eom_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},
    {"sep_token", "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.separator_token_id"},
    {"pad_token", "tokenizer.ggml.padding_token_id"},
    {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"},
    {"fim_pre_token", "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"},
    {"fim_suf_token", "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"},
    {"fim_mid_token", "tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"},
    {"fim_pad_token", "tokenizer.ggml.fim_pad_token_id"},
    {"fim_rep_token", "tokenizer.ggml.fim_rep_token_id"},
    {"fim_sep_token", "tokenizer.ggml.fim_sep_token_id"},
};

struct Vocab {
  Vocab() = default;
  Vocab(Vocab&&) = default;  // moved only: ids points into tokens
  Vocab& operator=(Vocab&&) = default;

  std::string path;  // the file's, for errors
  TokenizerModel model = TokenizerModel::llama;
  std::string pre;  // tokenizer.ggml.pre; may be empty
  std::vector<std::string> tokens;
  std::vector<double> scores;                               // empty: none
  std::vector<TokenType> types;                             // one for each token
  std::unordered_map<std::string_view, text::TokenId> ids;  // by a token's text
  // Ids by the names of tokenizer_config.json, those of the file and llama.cpp's defaults.
  std::map<std::string, text::TokenId, std::less<>> special;
  bool add_bos = false, add_eos = false, add_sep = false;
  bool add_space_prefix = false, remove_extra_whitespaces = false;
  std::string warning;

  size_t size() const { return tokens.size(); }
  const std::string& token(text::TokenId id) const { return tokens[static_cast<size_t>(id)]; }
  TokenType type(text::TokenId id) const { return types[static_cast<size_t>(id)]; }
  // The id of a token by its text, or of a special token by its name; kNoToken: none.
  text::TokenId find(std::string_view text) const;
  text::TokenId special_id(std::string_view name) const;
};

// Throws Error naming the file and the key.
Vocab vocab_of(const Gguf& file);

// The tokens at which llama.cpp ends a text, the file's eos first: eos, eot, eom, and special tokens by their
// texts.
std::vector<int64_t> ends_of_text(const Vocab& vocab);
// True if llama.cpp ends a text at a special token of this text, whatever the metadata says.
bool ends_by_text(std::string_view token);

}  // namespace qkv::gguf

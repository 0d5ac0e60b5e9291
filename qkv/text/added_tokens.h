// Tokens that are matched in the text before any other stage sees it.
#pragma once

#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "qkv/text/normalizer.h"
#include "qkv/text/vocabulary.h"

namespace qkv::text {

// One such token and how it is matched.
struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool single_word = false;  // only between characters that are not \w
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // matched, in its own normal form, after the normalizer
  bool special = true;       // left out when decoding without special tokens
};

// Finds the longest of a set of strings at each position.
class StringMatcher {
 public:
  void add(std::string_view string, size_t value);
  bool empty() const { return nodes_.empty(); }

  // A string found, and the value it was added with.
  struct Match {
    Range range;
    size_t value;
  };
  // The first match at or after `from`. If there is none, its range has begin == text.size().
  Match find(std::string_view text, size_t from) const;

 private:
  static constexpr size_t kNothing = SIZE_MAX;
  std::array<bool, 256> starts_{};
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<size_t> nodes_;                     // the value that ends at each node
};

// All of a tokenizer's added tokens.
class AddedTokens {
 public:
  // Tokens with ids of their own or, if their content is in `vocabulary`, the id there. Throws Error naming
  // `place` for repeated contents, ids that belong to another token and contents longer than 1024 bytes.
  AddedTokens(std::vector<AddedToken> tokens, const Vocabulary& vocabulary, const Normalizer* normalizer,
              const std::string& place);
  AddedTokens() = default;

  // A part of a text: an occurrence of a token, or the text between two.
  struct Segment {
    Range range;
    TokenId id;  // kNoToken between tokens
  };
  // Cuts a text at the added tokens that are matched before normalization or, if `normalized`, after it.
  std::vector<Segment> split(std::string_view text, bool normalized) const;

  const AddedToken* find(TokenId id) const;
  TokenId find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }
  nlohmann::ordered_json to_json() const;

 private:
  std::vector<AddedToken> tokens_;  // by id
  std::unordered_map<TokenId, size_t> by_id_;
  std::map<std::string, size_t, std::less<>> by_content_;
  StringMatcher raw_, normalized_;
};

// The list "added_tokens" of tokenizer.json.
std::vector<AddedToken> parse_added_tokens(const JsonField& field);

// The flags of an added token from an object; absent ones are those of `defaults`.
AddedToken parse_added_token(const JsonField& field, AddedToken defaults);

}  // namespace qkv::text

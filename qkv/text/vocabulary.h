// Tokens and their ids, both ways.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qkv {
class JsonField;
}

namespace qkv::text {

// Ids count from 0.
using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;                 // no token
inline constexpr TokenId kLargestTokenId = 10'000'000;  // largest id of a file; bounds the table of texts

// Maps the tokens of a model to their ids and back.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;  // moved only: by_id_ points into ids_
  Vocabulary& operator=(Vocabulary&&) = default;

  // Reads {"token": id, ...}: unique ids from 0 to kLargestTokenId; gaps are allowed.
  explicit Vocabulary(const JsonField& field);
  nlohmann::ordered_json to_json() const;  // in the order of the ids

  // Returns false without changes if the token or the id is taken. REQUIRES: 0 <= id <= kLargestTokenId.
  bool add(std::string token, TokenId id);

  TokenId find(std::string_view token) const;        // kNoToken when absent
  const std::string* token(TokenId id) const;        // null when absent
  size_t size() const { return ids_.size(); }        // number of tokens
  size_t id_limit() const { return by_id_.size(); }  // the largest id plus one

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> by_id_;  // the keys of ids_, whose addresses are stable
};

}  // namespace qkv::text

// SentencePiece's compiled normalization rules: strings of a text and their replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// The field precompiled_charsmap: a double-array trie (darts-clone) over the strings that are replaced,
// followed by the replacements, each terminated by a zero byte.
class Charsmap {
 public:
  // Throws Error naming `place` if the bytes are not such a map. Empty bytes are the map without rules.
  Charsmap(std::string bytes, const std::string& place);
  Charsmap() = default;

  // A rule that applies at the start of a text.
  struct Rule {
    size_t length;  // bytes that it replaces
    std::string_view by;
  };
  std::optional<Rule> longest(std::string_view text) const { return find(text, true); }
  std::optional<Rule> shortest(std::string_view text) const { return find(text, false); }

  bool empty() const { return units_.empty(); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::optional<Rule> find(std::string_view text, bool longest) const;

  std::string bytes_;
  std::vector<uint32_t> units_;
  size_t replacements_ = 0;  // their offset in bytes_
};

}  // namespace qkv::text

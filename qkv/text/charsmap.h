// SentencePiece's compiled rules of normalisation: which strings of a text become which others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::text {

// The field precompiled_charsmap: a double-array trie (darts-clone) over the strings that are replaced, and
// the replacements one after another, each ended by a zero byte.
class Charsmap {
 public:
  // Throws Error naming `place` when the bytes are no such map. Empty bytes are the map without rules.
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
  size_t replacements_ = 0;  // where in bytes_ they begin
};

}  // namespace qkv::text

// The pre-tokenizers that GGUF files name: how byte-level BPE cuts a text before it merges.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {
class JsonField;
}

namespace qkv::gguf {

// One name of tokenizer.ggml.pre.
struct PreTokenizer {
  std::string_view name;
  // Regular expressions: each cuts the pieces of the one before into its matches and what lies between.
  std::span<const std::string_view> patterns;
  bool ignore_merges = false;  // a piece that is a token is taken whole
  // Defaults of the keys with these names.
  bool add_bos = false;
  bool add_sep = false;
};

// The pre-tokenizer of a name; null if it is unknown.
const PreTokenizer* find_pre_tokenizer(std::string_view name);
// All names, for messages.
std::string pre_tokenizer_names();

// Its stages as tokenizer.json has them, ByteLevel last.
nlohmann::json pre_tokenizer_stages(const PreTokenizer& pre);

// The patterns of "pre_tokenizer" of a tokenizer.json, spelled as in the table; nullopt if it does anything
// but cut at patterns and spell bytes.
std::optional<std::vector<std::string>> patterns_of_stages(const JsonField& field);
// The first pre-tokenizer with these patterns; one with the same treatment of merges if there is one.
const PreTokenizer* find_by_patterns(const std::vector<std::string>& patterns, bool ignore_merges);
bool has_patterns(const PreTokenizer& pre, const std::vector<std::string>& patterns);

}  // namespace qkv::gguf

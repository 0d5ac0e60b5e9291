// GPT-2's pre-tokenization pattern, matched by hand-written code for speed.
#pragma once

#include <cstddef>
#include <string_view>

namespace qkv::text {

// The regular expression that the function below matches.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// End of the match that starts at `begin`; a match starts at every position of a text. Bytes that are not
// UTF-8 count as punctuation. REQUIRES: begin < text.size().
size_t gpt2_match_end(std::string_view text, size_t begin);

}  // namespace qkv::text

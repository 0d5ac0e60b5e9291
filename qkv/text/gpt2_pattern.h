// GPT-2's pre-tokenisation pattern, matched by hand: the only pattern fast enough to deserve it.
#pragma once

#include <cstddef>
#include <string_view>

namespace qkv::text {

// What the functions below match, as a regular expression.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// End of the match that starts at `begin`: every position of a text starts one. Bytes that are not UTF-8
// count as punctuation. REQUIRES: begin < text.size().
size_t gpt2_match_end(std::string_view text, size_t begin);

}  // namespace qkv::text

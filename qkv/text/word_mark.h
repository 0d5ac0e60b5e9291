// The character that stands for a space in pieces of SentencePiece.
#pragma once

#include <string_view>

namespace qkv::text {

inline constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581

}  // namespace qkv::text

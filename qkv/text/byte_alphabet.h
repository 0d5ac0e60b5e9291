// GPT-2's reversible spelling of bytes as printable characters: '!' is itself, a space is 'Ġ'.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qkv::text {

// The code point that stands for `byte`.
int32_t byte_to_character(unsigned char byte);

// Spells bytes as characters.
std::string spell_bytes(std::string_view bytes);

// The bytes that a spelling stands for; nullopt if one of its characters is outside the alphabet.
std::optional<std::string> unspell_bytes(std::string_view spelling);

// The byte that a token like <0xE4> stands for; -1 for all others.
int byte_of_fallback(std::string_view token);

}  // namespace qkv::text

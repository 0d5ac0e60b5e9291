// UTF-8 and the Unicode properties that tokenizers need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qkv::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// One character of a text. A byte that starts no valid UTF-8 sequence is a character of length 1 with
// codepoint -1.
struct Character {
  int32_t codepoint;
  uint32_t length;
  bool valid() const { return codepoint >= 0; }
};

// The character at `position`. REQUIRES: position < text.size().
Character character_at(std::string_view text, size_t position);

// Byte offset of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

// Throws Error naming `what` and the byte offset unless `text` is UTF-8.
void check_utf8(std::string_view text, std::string_view what);

// REQUIRES: a Unicode scalar value.
void append_utf8(std::string& out, int32_t codepoint);

// Moves the complete characters at the start of `pending` to the result, each invalid byte sequence as
// U+FFFD; a sequence that further bytes may still complete stays in `pending`.
std::string take_complete_utf8(std::string& pending);

// `text` with U+FFFD in place of each invalid byte sequence.
std::string to_valid_utf8(std::string text);

// The classes that GPT-2's pattern tells apart: \p{L}, \p{N}, \s (White_Space) and the rest.
enum class CharacterClass : uint8_t { kOther, kLetter, kNumber, kSpace };
CharacterClass class_of(int32_t codepoint);
inline bool is_space(int32_t codepoint) {
  return class_of(codepoint) == CharacterClass::kSpace;
}

// \w of UTS #18: letters, other alphabetic characters, marks, decimal digits, connectors. Approximates
// Other_Alphabetic outside letters and marks by the circled and squared letters.
bool is_word_character(int32_t codepoint);

// General categories (UAX #44): P* punctuation; C* control, format, unassigned and private characters;
// Mn marks that take no room of their own.
bool is_punctuation(int32_t codepoint);
bool is_symbol(int32_t codepoint);          // S*
inline bool is_number(int32_t codepoint) {  // N*
  return class_of(codepoint) == CharacterClass::kNumber;
}
bool is_other(int32_t codepoint);
bool is_nonspacing_mark(int32_t codepoint);
bool is_mark(int32_t codepoint);           // M*
bool is_decimal_digit(int32_t codepoint);  // Nd

// True if the character has a canonical combining class other than 0.
bool is_combining(int32_t codepoint);

// True for CJK ideographs, which BERT treats as words of one character.
bool is_cjk_ideograph(int32_t codepoint);

// Number of characters of a text: bytes that are not UTF-8 continuation bytes.
size_t count_characters(std::string_view text);

// Columns that a text takes in a terminal.
size_t display_width(std::string_view text);

// The normal forms of Unicode (UAX #15).
enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// The normal form of `text`. REQUIRES: valid UTF-8.
std::string to_normal_form(std::string_view text, NormalForm form);

// True if a text may be cut just before `codepoint` without changing its normal form on either side.
bool starts_normalization_segment(int32_t codepoint);

// End of the extended grapheme cluster (UAX #29) that starts at `position`. REQUIRES: position <
// text.size().
size_t grapheme_end(std::string_view text, size_t position);

// Appends the lower-case mapping (one character may become two: U+0130).
void append_lowercase(std::string& out, int32_t codepoint);
// Appends the upper-case mapping of one character, except that of U+00DF.
void append_uppercase(std::string& out, int32_t codepoint);

}  // namespace qkv::text

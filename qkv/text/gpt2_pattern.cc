#include "qkv/text/gpt2_pattern.h"

#include <array>

#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

constexpr CharacterClass ascii_class(int c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharacterClass::kLetter;
  if (c >= '0' && c <= '9') return CharacterClass::kNumber;
  if (c == ' ' || (c >= 0x09 && c <= 0x0D)) return CharacterClass::kSpace;
  return CharacterClass::kOther;
}

constexpr auto kAscii = [] {
  std::array<CharacterClass, 128> table{};
  for (int c = 0; c < 128; ++c) table[static_cast<size_t>(c)] = ascii_class(c);
  return table;
}();

struct Classified {
  CharacterClass kind;
  uint32_t length;
};

inline Classified classify(std::string_view text, size_t i) {
  const auto byte = static_cast<unsigned char>(text[i]);
  if (byte < 128) return {kAscii[byte], 1};
  const Character c = character_at(text, i);
  return {class_of(c.codepoint), c.length};
}

// End of the run of characters of class `kind` that contains position `i`.
inline size_t run_end(std::string_view text, size_t i, CharacterClass kind) {
  while (i < text.size()) {
    const Classified next = classify(text, i);
    if (next.kind != kind) break;
    i += next.length;
  }
  return i;
}

// Length of 's 't 're 've 'm 'll 'd at `i`, or 0. REQUIRES: text[i] is an apostrophe.
inline size_t contraction_length(std::string_view text, size_t i) {
  const char first = i + 1 < text.size() ? text[i + 1] : '\0';
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = i + 2 < text.size() ? text[i + 2] : '\0';
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  return 0;
}

// \s+(?!\S)|\s+ : the whole run at the end of the text. Elsewhere the run without its last character, which
// belongs to the next match, unless it is the only one.
inline size_t space_match_end(std::string_view text, size_t begin) {
  size_t last = begin, end = begin;
  while (end < text.size()) {
    const Classified next = classify(text, end);
    if (next.kind != CharacterClass::kSpace) break;
    last = end;
    end += next.length;
  }
  return end == text.size() || last == begin ? end : last;
}

}  // namespace

size_t gpt2_match_end(std::string_view text, size_t begin) {
  if (text[begin] == '\'') {
    const size_t length = contraction_length(text, begin);
    if (length != 0) return begin + length;
  }
  const size_t body = text[begin] == ' ' && begin + 1 < text.size() ? begin + 1 : begin;
  const Classified first = classify(text, body);
  if (first.kind == CharacterClass::kSpace) return space_match_end(text, begin);
  return run_end(text, body + first.length, first.kind);
}

}  // namespace qkv::text

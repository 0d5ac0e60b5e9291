#include "qkv/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <cstring>

#include "qkv/base/error.h"

namespace qkv::text {
namespace {

bool is_continuation(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

// Length in bytes of a sequence that starts with `lead`; 0 if none does.
uint32_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// True if `second` may follow `lead`: excludes overlong forms, surrogates and values above U+10FFFF.
bool second_byte_fits(unsigned char lead, unsigned char second) {
  if (!is_continuation(second)) return false;
  switch (lead) {
    case 0xE0:
      return second >= 0xA0;
    case 0xED:
      return second <= 0x9F;
    case 0xF0:
      return second >= 0x90;
    case 0xF4:
      return second <= 0x8F;
    default:
      return true;
  }
}

CharacterClass compute_class(int32_t codepoint) {
  switch (codepoint) {  // White_Space outside the separators
    case 0x09:
    case 0x0A:
    case 0x0B:
    case 0x0C:
    case 0x0D:
    case 0x85:
      return CharacterClass::kSpace;
    default:
      break;
  }
  switch (utf8proc_category(codepoint)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::kNumber;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return CharacterClass::kSpace;
    default:
      return CharacterClass::kOther;
  }
}

// Classes of the basic multilingual plane, computed once, so that a lookup is one load.
const std::array<CharacterClass, 0x10000>& basic_plane() {
  static const std::array<CharacterClass, 0x10000> table = [] {
    std::array<CharacterClass, 0x10000> t;
    for (int32_t c = 0; c < 0x10000; ++c) t[static_cast<size_t>(c)] = compute_class(c);
    return t;
  }();
  return table;
}

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  const bool composed = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  return static_cast<utf8proc_option_t>(options);
}

}  // namespace

Character character_at(std::string_view text, size_t position) {
  assert(position < text.size());
  const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + position;
  if (p[0] < 0x80) return {p[0], 1};
  const uint32_t length = sequence_length(p[0]);
  if (length == 0 || text.size() - position < length || !second_byte_fits(p[0], p[1])) return {-1, 1};
  int32_t codepoint = p[0] & (0xFF >> (length + 1));
  for (uint32_t i = 1; i < length; ++i) {
    if (!is_continuation(p[i])) return {-1, 1};
    codepoint = (codepoint << 6) | (p[i] & 0x3F);
  }
  return {codepoint, length};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t eight;
    if (text.size() - i >= 8 &&
        (std::memcpy(&eight, text.data() + i, 8), (eight & 0x8080808080808080u) == 0)) {
      i += 8;
      continue;
    }
    const Character c = character_at(text, i);
    if (!c.valid()) return i;
    i += c.length;
  }
  return std::string_view::npos;
}

void check_utf8(std::string_view text, std::string_view what) {
  const size_t at = find_invalid_utf8(text);
  if (at == std::string_view::npos) return;
  fail("{}: byte 0x{:02X} at offset {} is not valid UTF-8", what, static_cast<unsigned char>(text[at]), at);
}

void append_utf8(std::string& out, int32_t codepoint) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(codepoint, bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::string take_complete_utf8(std::string& pending) {
  std::string complete;
  size_t i = 0;
  while (i < pending.size()) {
    const Character c = character_at(pending, i);
    if (c.valid()) {
      complete.append(pending, i, c.length);
      i += c.length;
      continue;
    }
    // Counts the bytes that agree with a valid sequence. If they reach the end, more may follow.
    const auto* p = reinterpret_cast<const unsigned char*>(pending.data()) + i;
    const size_t left = pending.size() - i, length = sequence_length(p[0]);
    size_t good = length == 0 ? 0 : 1;
    if (good == 1 && left > 1 && length > 1 && second_byte_fits(p[0], p[1])) {
      for (good = 2; good < left && good < length && is_continuation(p[good]);) ++good;
    }
    if (good == left) break;
    complete += kReplacementCharacter;
    i += good == 0 ? 1 : good;
  }
  pending.erase(0, i);
  return complete;
}

std::string to_valid_utf8(std::string text) {
  std::string valid = take_complete_utf8(text);
  if (!text.empty()) valid += kReplacementCharacter;
  return valid;
}

CharacterClass class_of(int32_t codepoint) {
  if (codepoint < 0) return CharacterClass::kOther;
  static const auto& plane = basic_plane();
  return codepoint < 0x10000 ? plane[static_cast<size_t>(codepoint)] : compute_class(codepoint);
}

bool is_word_character(int32_t codepoint) {
  if (codepoint < 0) return false;
  switch (utf8proc_category(codepoint)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  return (codepoint >= 0x24B6 && codepoint <= 0x24E9) || (codepoint >= 0x1F130 && codepoint <= 0x1F149) ||
         (codepoint >= 0x1F150 && codepoint <= 0x1F169) || (codepoint >= 0x1F170 && codepoint <= 0x1F189) ||
         codepoint == 0x200C || codepoint == 0x200D;
}

bool is_punctuation(int32_t codepoint) {
  if (codepoint < 0) return false;
  const auto category = utf8proc_category(codepoint);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_symbol(int32_t codepoint) {
  if (codepoint < 0) return false;
  const auto category = utf8proc_category(codepoint);
  return category >= UTF8PROC_CATEGORY_SM && category <= UTF8PROC_CATEGORY_SO;
}

bool is_other(int32_t codepoint) {
  if (codepoint < 0) return false;
  const auto category = utf8proc_category(codepoint);
  return category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_CC;
}

bool is_nonspacing_mark(int32_t codepoint) {
  return codepoint >= 0x300 && utf8proc_category(codepoint) == UTF8PROC_CATEGORY_MN;
}

bool is_mark(int32_t codepoint) {
  if (codepoint < 0x300) return false;
  const auto category = utf8proc_category(codepoint);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool is_decimal_digit(int32_t codepoint) {
  return codepoint >= '0' && utf8proc_category(codepoint) == UTF8PROC_CATEGORY_ND;
}

bool is_combining(int32_t codepoint) {
  return codepoint >= 0x300 && utf8proc_get_property(codepoint)->combining_class != 0;
}

bool is_cjk_ideograph(int32_t codepoint) {
  static constexpr int32_t kBlocks[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                           {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
                                           {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  if (codepoint < kBlocks[0][0]) return false;
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [&](const auto& block) { return codepoint >= block[0] && codepoint <= block[1]; });
}

size_t display_width(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    columns += c.valid() ? static_cast<size_t>(std::max(0, utf8proc_charwidth(c.codepoint))) : 1;
    at += c.length;
  }
  return columns;
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return !is_continuation(static_cast<unsigned char>(c)); }));
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  if (length < 0) fail("Unicode normalisation: {}", utf8proc_errmsg(length));
  std::string result(reinterpret_cast<const char*>(mapped), static_cast<size_t>(length));
  std::free(mapped);
  return result;
}

bool starts_normalization_segment(int32_t codepoint) {
  if (codepoint < 0x300) return true;
  if (codepoint >= 0x1160 && codepoint <= 0x11FF)
    return false;  // Hangul vowels and finals join what precedes
  if (codepoint == 0xFF9E || codepoint == 0xFF9F || (codepoint >= 0xFFA0 && codepoint <= 0xFFDC)) {
    return false;  // half-width forms of marks and of Hangul letters
  }
  if (codepoint >= 0x3131 && codepoint <= 0x318E)
    return false;  // compatibility letters that become Hangul ones
  const utf8proc_property_t* property = utf8proc_get_property(codepoint);
  if (property->combining_class != 0) return false;
  switch (property->category) {  // every other second part of a composition is a mark
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return false;
    default:
      return true;
  }
}

size_t grapheme_end(std::string_view text, size_t position) {
  Character last = character_at(text, position);
  utf8proc_int32_t state = 0;
  for (size_t i = position + last.length; i < text.size();) {
    const Character next = character_at(text, i);
    const bool ends = !last.valid() || !next.valid() ||
                      utf8proc_grapheme_break_stateful(last.codepoint, next.codepoint, &state) != 0;
    if (ends) return i;
    last = next;
    i += next.length;
  }
  return text.size();
}

void append_lowercase(std::string& out, int32_t codepoint) {
  if (codepoint == 0x130) {  // the only character whose unconditional lower case has two characters
    out += "i\xCC\x87";
    return;
  }
  append_utf8(out, utf8proc_tolower(codepoint));
}

void append_uppercase(std::string& out, int32_t codepoint) {
  if (codepoint == 0xDF) {
    out += "SS";
    return;
  }
  append_utf8(out, utf8proc_toupper(codepoint));
}

}  // namespace qkv::text

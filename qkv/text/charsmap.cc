#include "qkv/text/charsmap.h"

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// The fields of a unit of the double array.
bool has_leaf(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFF;
}
uint32_t label_of(uint32_t unit) {
  return unit & 0x800000FF;
}
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200) >> 6);
}

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

Charsmap::Charsmap(std::string bytes, const std::string& place) : bytes_(std::move(bytes)) {
  if (bytes_.empty()) return;
  const size_t size = bytes_.size() >= 4 ? read_u32(bytes_, 0) : 0;
  check(bytes_.size() >= 4 && size % 4 == 0 && size <= bytes_.size() - 4,
        "{}: not a compiled map of characters: its trie has {} of {} bytes", place, size, bytes_.size());
  for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(read_u32(bytes_, at));
  replacements_ = 4 + size;
  const std::string_view replacements = std::string_view(bytes_).substr(replacements_);
  check(replacements.empty() || replacements.back() == '\0', "{}: the last replacement does not end", place);
  check_utf8(replacements, place);
}

std::optional<Charsmap::Rule> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<Rule> found;
  if (units_.empty()) return found;
  uint32_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit) || node >= units_.size()) continue;
    const size_t at = replacements_ + value_of(units_[node]);
    // A damaged map may cut a character or a replacement.
    const bool whole = at < bytes_.size() && !continues_character(bytes_[at]) &&
                       (i + 1 == text.size() || !continues_character(text[i + 1]));
    if (!whole) continue;
    found = {i + 1, std::string_view(bytes_).substr(at, bytes_.find('\0', at) - at)};
    if (!longest) break;
  }
  return found;
}

}  // namespace qkv::text

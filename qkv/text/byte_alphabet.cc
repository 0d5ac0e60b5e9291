#include "qkv/text/byte_alphabet.h"

#include <array>

#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

constexpr int32_t kLastCharacter = 0x143;  // 256 + the 68 bytes that are not printable, less one

bool stands_for_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<int32_t, 256> character;
  std::array<int16_t, kLastCharacter + 1> byte;

  Alphabet() {
    byte.fill(-1);
    int32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const int32_t c = stands_for_itself(b) ? b : next++;
      character[static_cast<size_t>(b)] = c;
      byte[static_cast<size_t>(c)] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

int32_t byte_to_character(unsigned char byte) {
  return alphabet().character[byte];
}

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  spelling.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(spelling, byte_to_character(static_cast<unsigned char>(byte)));
  return spelling;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    const Character c = character_at(spelling, i);
    if (!c.valid() || c.codepoint > kLastCharacter) return std::nullopt;
    const int16_t byte = alphabet().byte[static_cast<size_t>(c.codepoint)];
    if (byte < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
    i += c.length;
  }
  return bytes;
}

int byte_of_fallback(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int byte = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'A' && c <= 'F')) return -1;
    byte = byte * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return byte;
}

}  // namespace qkv::text

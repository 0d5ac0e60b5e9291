// Hashes of contents.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace qkv {

// A 128-bit hash (XXH3) in hexadecimal. Detects changed data, but does not protect against forgery.
std::string hash_of(std::span<const std::byte> bytes);
inline std::string hash_of(std::string_view text) {
  return hash_of(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace qkv

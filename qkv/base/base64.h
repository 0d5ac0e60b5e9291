// Base64 (RFC 4648).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qkv {

// With padding, without line breaks.
std::string to_base64(std::string_view bytes);

// Returns nullopt if to_base64() cannot have written `text`.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace qkv

// Values as bytes, for another rank of the same program.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "qkv/base/error.h"

namespace qkv {

template <typename T>
void put(std::string& message, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  message.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void put_text(std::string& message, std::string_view text) {
  put(message, text.size());
  message += text;
}

// The next bytes of a message. Throws Error if it has too few.
inline std::string_view take_bytes(std::string_view& message, size_t count) {
  check(message.size() >= count, "a message of another rank is cut short: {} bytes wanted, {} left", count,
        message.size());
  const std::string_view bytes = message.substr(0, count);
  message.remove_prefix(count);
  return bytes;
}

template <typename T>
T take(std::string_view& message) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, take_bytes(message, sizeof value).data(), sizeof value);
  return value;
}

inline std::string take_text(std::string_view& message) {
  const auto length = take<size_t>(message);
  return std::string(take_bytes(message, length));
}

}  // namespace qkv

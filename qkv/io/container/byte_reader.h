// Reads little-endian numbers from a file that is not trusted.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "qkv/base/error.h"

namespace qkv {

// A position in the bytes of a file. Throws Error naming the file if it ends too early.
class ByteReader {
 public:
  // `bytes` and `where` must outlive this.
  ByteReader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  // The next `count` bytes.
  std::string_view take(uint64_t count) {
    check(count <= left(), "{}: it ends after {} bytes, within {} bytes from {} on", where_, bytes_.size(),
          count, at_);
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  // The next number: u8, u16, u32, i32, float ...
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  const std::string& where() const { return where_; }

 private:
  std::string_view bytes_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace qkv

// GGUF files made by hand, byte by byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/io/container/gguf.h"

namespace qkv::testing {

// Codes of the format: types of values, then types of tensors.
inline constexpr uint32_t kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBoolean = 7,
                          kString = 8, kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12;
inline constexpr uint32_t kTensorF32 = 0, kTensorF16 = 1, kTensorQ8_0 = 8, kTensorI32 = 26, kTensorBf16 = 30;

// The bytes of a number, and of a string after its length.
template <typename T>
std::string bytes_of(T number) {
  std::string s(sizeof number, '\0');
  std::memcpy(s.data(), &number, sizeof number);
  return s;
}
inline std::string string_bytes(std::string_view text) {
  return bytes_of(uint64_t{text.size()}) + std::string(text);
}

// A key with a value of any type, and one with an array of `count` elements.
inline std::string key_bytes(std::string_view key, uint32_t type, const std::string& value) {
  return string_bytes(key) + bytes_of(type) + value;
}
inline std::string array_bytes(std::string_view key, uint32_t type, uint64_t count,
                               const std::string& elements) {
  return key_bytes(key, kArray, bytes_of(type) + bytes_of(count) + elements);
}

struct TensorBytes {
  std::string name = "x";
  std::vector<uint64_t> extents = {2};  // the first is the last of our shape
  uint32_t type = kTensorF32;
  uint64_t offset = 0;
};
inline std::string tensor_bytes(const TensorBytes& tensor) {
  std::string s = string_bytes(tensor.name) + bytes_of(static_cast<uint32_t>(tensor.extents.size()));
  for (const uint64_t extent : tensor.extents) s += bytes_of(extent);
  return s + bytes_of(tensor.type) + bytes_of(tensor.offset);
}

// A file of these keys, entries of tensors and data.
struct GgufBytes {
  std::vector<std::string> keys = {}, tensors = {};
  std::string data = {};
  uint32_t version = 3;
  uint64_t alignment = 32;

  std::string text() const {
    std::string s =
        "GGUF" + bytes_of(version) + bytes_of(uint64_t{tensors.size()}) + bytes_of(uint64_t{keys.size()});
    for (const std::string& key : keys) s += key;
    for (const std::string& tensor : tensors) s += tensor;
    s.append((alignment - s.size() % alignment) % alignment, '\0');
    return s + data;
  }
};

// Parses a copy that is as long as the file, so that a sanitizer sees each step outside.
inline Gguf parse(const std::string& file) {
  const auto copy = std::make_shared<std::vector<std::byte>>(file.size());
  if (!file.empty()) std::memcpy(copy->data(), file.data(), file.size());
  return parse_gguf(copy->data(), copy->size(), copy, "model.gguf");
}

}  // namespace qkv::testing

// The GGUF format of llama.cpp: typed metadata, a table of tensors, the bytes of the tensors.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "qkv/tensor/weight.h"

namespace qkv {

// A value of the metadata. Files tell numbers of 8 to 64 bits apart, and so does `type`. One of the three
// lists is in use: with one element, or any number if it is an array.
struct GgufValue {
  // The format's codes of types.
  enum class Type : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
  Type type = Type::u32;                  // a single value has this type, or each element of an array
  bool is_array = false;                  // arrays of arrays are not supported
  std::vector<int64_t> integers = {};     // integers, and booleans as 0 or 1
  std::vector<double> numbers = {};       // f32 and f64
  std::vector<std::string> strings = {};  // any bytes

  static GgufValue of(std::string_view text);
  template <std::same_as<bool> Flag>  // nothing else becomes a boolean, least of all the text in a pointer
  static GgufValue of(Flag flag) {
    return {.type = Type::boolean, .integers = {flag ? 1 : 0}};
  }
  static GgufValue of_u32(int64_t number);
  static GgufValue of_f32(double number);
  static GgufValue of_strings(std::vector<std::string> strings);
  static GgufValue of_integers(Type type, std::vector<int64_t> integers);
  static GgufValue of_f32s(std::vector<double> numbers);
};

// Contents of a file, or of all files of a model that was split.
struct Gguf {
  std::string path = {};                                         // for errors
  std::vector<std::pair<std::string, GgufValue>> metadata = {};  // in the file's order
  // In the file's order. Shapes are row-major: GGUF's first extent comes last.
  std::vector<std::pair<std::string, Weight>> tensors = {};

  // The value of a key; null if there is none.
  const GgufValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The value of a key. Throw Error, naming the file and the key, if it is missing or of another kind. An
  // integer may be of any width; a number may be stored as an integer. integers() takes booleans as 0 and 1.
  const std::string& string(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  const std::vector<std::string>& strings(std::string_view key) const;
  const std::vector<int64_t>& integers(std::string_view key) const;
  std::vector<double> numbers(std::string_view key) const;

  // The tensor of a name; null if there is none.
  const Weight* tensor(std::string_view name) const;

  // Entries by name. The readers call index(); without it, names are searched one by one. Call it again after
  // renaming an entry. Throws Error if a key or a name is there twice.
  void index();
  using Index = std::map<std::string, size_t, std::less<>>;
  Index key_index = {}, tensor_index = {};
};

// Reads a file of version 2 or 3. If it is a part of a split model ("NAME-00001-of-00003.gguf"), reads all
// parts: the metadata is that of the first without its split.* keys. Tensors are views of the mapped files
// and keep them mapped. Files are not trusted: every count, length, type and offset is checked. Throws Error
// naming the file and the key or the tensor.
Gguf read_gguf(const std::string& path);

// The same for one file in memory that `owner` keeps alive, a part or not. Dense tensors that are not aligned
// for their elements there are copied.
Gguf parse_gguf(const std::byte* data, size_t size, const std::shared_ptr<const void>& owner,
                const std::string& where);

// Writes version 3 in one pass, in the order given, with tensors at multiples of 32 bytes. Not atomic. Throws
// Error naming the path and the key or the tensor if the format cannot hold it or the file cannot be written.
void write_gguf(const std::string& path, const std::vector<std::pair<std::string, GgufValue>>& metadata,
                const std::vector<std::pair<std::string, Weight>>& tensors);

}  // namespace qkv

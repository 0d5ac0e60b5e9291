#include "qkv/io/container/gguf.h"

#include <utility>

#include "qkv/io/container/gguf_types.h"

namespace qkv {

using gguf::is_integer;
using gguf::is_number;

GgufValue GgufValue::of(std::string_view text) {
  return {.type = Type::string, .strings = {std::string(text)}};
}

GgufValue GgufValue::of_u32(int64_t number) {
  return {.type = Type::u32, .integers = {number}};
}

GgufValue GgufValue::of_f32(double number) {
  return {.type = Type::f32, .numbers = {number}};
}

GgufValue GgufValue::of_strings(std::vector<std::string> strings) {
  return {.type = Type::string, .is_array = true, .strings = std::move(strings)};
}

GgufValue GgufValue::of_integers(Type type, std::vector<int64_t> integers) {
  return {.type = type, .is_array = true, .integers = std::move(integers)};
}

GgufValue GgufValue::of_f32s(std::vector<double> numbers) {
  return {.type = Type::f32, .is_array = true, .numbers = std::move(numbers)};
}

namespace {

template <typename T>
const T* find_entry(const std::vector<std::pair<std::string, T>>& entries, const Gguf::Index& index,
                    std::string_view name) {
  const auto it = index.find(name);
  if (it != index.end() && it->second < entries.size() && entries[it->second].first == name)
    return &entries[it->second].second;
  if (index.size() == entries.size()) return nullptr;
  for (const auto& [key, value] : entries)
    if (key == name) return &value;
  return nullptr;
}

template <typename T>
Gguf::Index index_of(const std::vector<std::pair<std::string, T>>& entries, const std::string& path,
                     std::string_view kind) {
  Gguf::Index index;
  for (const auto& [name, value] : entries)
    check(index.emplace(name, index.size()).second, "{}: {} '{}' is there twice", path, kind, name);
  return index;
}

const GgufValue& value_of(const Gguf& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  check(value != nullptr, "{}: key '{}' is missing", file.path, key);
  return *value;
}

[[noreturn]] void fail_kind(const Gguf& file, std::string_view key, const GgufValue& value,
                            std::string_view wanted) {
  fail("{}: key '{}': expected {}, got {}{}", file.path, key, wanted, value.is_array ? "an array of " : "",
       gguf::name_of(value.type));
}

}  // namespace

const GgufValue* Gguf::find(std::string_view key) const {
  return find_entry(metadata, key_index, key);
}

const Weight* Gguf::tensor(std::string_view name) const {
  return find_entry(tensors, tensor_index, name);
}

void Gguf::index() {
  key_index = index_of(metadata, path, "key");
  tensor_index = index_of(tensors, path, "tensor");
}

const std::string& Gguf::string(std::string_view key) const {
  const GgufValue& value = value_of(*this, key);
  if (value.is_array || value.strings.size() != 1) fail_kind(*this, key, value, "a string");
  return value.strings[0];
}

int64_t Gguf::integer(std::string_view key) const {
  const GgufValue& value = value_of(*this, key);
  if (value.is_array || !is_integer(value.type) || value.integers.size() != 1)
    fail_kind(*this, key, value, "an integer");
  return value.integers[0];
}

double Gguf::number(std::string_view key) const {
  const GgufValue& value = value_of(*this, key);
  if (!value.is_array && is_number(value.type) && value.numbers.size() == 1) return value.numbers[0];
  if (value.is_array || !is_integer(value.type) || value.integers.size() != 1)
    fail_kind(*this, key, value, "a number");
  return static_cast<double>(value.integers[0]);
}

bool Gguf::boolean(std::string_view key) const {
  const GgufValue& value = value_of(*this, key);
  if (value.is_array || value.type != GgufValue::Type::boolean || value.integers.size() != 1)
    fail_kind(*this, key, value, "a boolean");
  return value.integers[0] != 0;
}

const std::vector<std::string>& Gguf::strings(std::string_view key) const {
  const GgufValue& value = value_of(*this, key);
  if (!value.is_array || value.type != GgufValue::Type::string)
    fail_kind(*this, key, value, "an array of strings");
  return value.strings;
}

const std::vector<int64_t>& Gguf::integers(std::string_view key) const {
  const GgufValue& value = value_of(*this, key);
  if (!value.is_array || (!is_integer(value.type) && value.type != GgufValue::Type::boolean))
    fail_kind(*this, key, value, "an array of integers");
  return value.integers;
}

std::vector<double> Gguf::numbers(std::string_view key) const {
  const GgufValue& value = value_of(*this, key);
  if (value.is_array && is_number(value.type)) return value.numbers;
  if (!value.is_array || !is_integer(value.type)) fail_kind(*this, key, value, "an array of numbers");
  return {value.integers.begin(), value.integers.end()};
}

}  // namespace qkv

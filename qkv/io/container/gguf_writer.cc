#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <type_traits>

#include "qkv/io/container/gguf.h"
#include "qkv/io/container/gguf_types.h"

namespace qkv {
namespace {

template <typename T>
void put(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}
void put_string(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out.append(text);
}

// Appends an integer if T can hold it; booleans are 0 or 1.
template <typename T>
void put_integer(std::string& out, int64_t number, GgufValue::Type type, const std::string& place) {
  bool fits = number >= 0 || std::is_signed_v<T>;
  if constexpr (sizeof(T) < sizeof number)
    fits = number >= std::numeric_limits<T>::min() && number <= std::numeric_limits<T>::max();
  if (type == GgufValue::Type::boolean) fits = number == 0 || number == 1;
  check(fits, "{}: {} is no {}", place, number, gguf::name_of(type));
  put(out, static_cast<T>(number));
}

// The number of elements in the list that the type uses. Throws Error if another list has some.
size_t elements_of(const GgufValue& value, const std::string& place) {
  const bool strings = value.type == GgufValue::Type::string, numbers = gguf::is_number(value.type);
  check((strings || value.strings.empty()) && (numbers || value.numbers.empty()) &&
            (!(strings || numbers) || value.integers.empty()),
        "{}: has elements of another type than {}", place, gguf::name_of(value.type));
  const size_t count = strings   ? value.strings.size()
                       : numbers ? value.numbers.size()
                                 : value.integers.size();
  check(value.is_array || count == 1, "{}: expected one element, got {}", place, count);
  return count;
}

void put_value(std::string& out, const GgufValue& value, const std::string& place) {
  check(value.type != GgufValue::Type::array, "{}: arrays of arrays are not supported", place);
  const size_t count = elements_of(value, place);
  if (value.is_array) put(out, static_cast<uint32_t>(GgufValue::Type::array));
  put(out, static_cast<uint32_t>(value.type));
  if (value.is_array) put(out, uint64_t{count});
  for (const std::string& text : value.strings) put_string(out, text);
  gguf::visit_number(value.type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>)
      for (const double number : value.numbers) {
        check(!std::isfinite(number) || std::abs(number) <= std::numeric_limits<T>::max(), "{}: {} is no {}",
              place, number, gguf::name_of(value.type));
        put(out, static_cast<T>(number));
      }
    else
      for (const int64_t number : value.integers) put_integer<T>(out, number, value.type, place);
  });
}

// The code of a tensor's type. Throws Error if the format has none.
uint32_t code_of(const Weight& tensor, const std::string& place) {
  for (uint32_t code = 0; code < std::size(gguf::kTensorTypes); ++code) {
    const gguf::TensorType& type = gguf::kTensorTypes[code];
    if (tensor.is_quantized() ? type.blocks == tensor.quantized().type()
                              : type.dense == tensor.dense().dtype())
      return code;
  }
  fail("{}: type {} cannot be written", place, name_of(tensor.dense().dtype()));
}

// Appends an entry of the table. `offset`: of the tensor's bytes in the data.
void put_entry(std::string& out, const std::string& name, const Weight& tensor, uint64_t offset,
               const std::string& place) {
  check(tensor.defined(), "{}: is undefined", place);
  const Shape& shape = tensor.shape();
  check(shape.rank() <= static_cast<int>(gguf::kMaxRank) && shape.count() > 0,
        "{}: expected at most {} extents, none of them 0, got {}", place, gguf::kMaxRank, shape);
  put_string(out, name);
  put(out, static_cast<uint32_t>(shape.rank()));
  for (int i = shape.rank() - 1; i >= 0; --i) put(out, static_cast<uint64_t>(shape[i]));
  put(out, code_of(tensor, place));
  put(out, offset);
}

// Checks a key or a name, and that it is not in `names` yet.
void expect_name(const std::string& name, uint64_t most, std::set<std::string>& names,
                 const std::string& place) {
  check(!name.empty() && name.size() <= most && gguf::is_printable(name),
        "{}: a name is 1 to {} characters of printable ASCII", place, most);
  check(names.insert(name).second, "{}: given twice", place);
}

// Readers place tensors by this key, which ggml takes as a u32 only.
void expect_alignment(const GgufValue& value, const std::string& place) {
  check(!value.is_array && value.type == GgufValue::Type::u32 &&
            value.integers == std::vector<int64_t>{gguf::kAlignment},
        "{}: expected u32 {}: tensors are written at multiples of it", place, gguf::kAlignment);
}

void pad(std::string& out, uint64_t size) {
  out.append(gguf::align_up(size, gguf::kAlignment) - size, '\0');
}

}  // namespace

void write_gguf(const std::string& path, const std::vector<std::pair<std::string, GgufValue>>& metadata,
                const std::vector<std::pair<std::string, Weight>>& tensors) {
  std::string header(gguf::kMagic);
  put(header, gguf::kVersion);
  put(header, uint64_t{tensors.size()});
  put(header, uint64_t{metadata.size()});
  std::set<std::string> keys, names;
  for (const auto& [key, value] : metadata) {
    const std::string place = fmt::format("{}: key '{}'", path, key);
    expect_name(key, gguf::kMaxKey, keys, place);
    if (key == gguf::kAlignmentKey) expect_alignment(value, place);
    put_string(header, key);
    put_value(header, value, place);
  }
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::string place = fmt::format("{}: tensor '{}'", path, name);
    expect_name(name, gguf::kMaxName - 1, names, place);
    put_entry(header, name, tensor, offset, place);
    offset = gguf::align_up(offset + tensor.bytes(), gguf::kAlignment);
  }
  pad(header, header.size());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(header.data(), std::ssize(header));
  for (const auto& [name, tensor] : tensors) {
    const Span<const std::byte> bytes =
        tensor.is_quantized() ? tensor.quantized().blocks() : tensor.dense().value_bytes();
    out.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
    std::string padding;
    pad(padding, bytes.size());
    out.write(padding.data(), std::ssize(padding));
  }
  out.flush();
  check(out.good(), "{}: cannot be written: {}", path, std::strerror(errno));
}

}  // namespace qkv

#include "qkv/io/container/ctranslate2.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "qkv/io/container/byte_reader.h"

namespace qkv {
namespace {

constexpr uint32_t kFirstVersion = 2, kLastVersion = 6, kTypedSince = 4, kAliasesSince = 3;
constexpr std::string_view kScale = "_scale";

// The element types, numbered as in files since version 4.
enum class Element : uint8_t { f32, i8, i16, i32, f16, bf16 };

// Bytes of an element.
int64_t width_of(Element type) {
  switch (type) {
    case Element::i8:
      return 1;
    case Element::i16:
    case Element::f16:
    case Element::bf16:
      return 2;
    case Element::f32:
    case Element::i32:
      return 4;
  }
  return 0;
}

struct Variable {
  std::vector<int64_t> shape;
  Element type = Element::f32;
  std::string_view bytes;

  int64_t count() const { return static_cast<int64_t>(bytes.size()) / width_of(type); }
  template <typename T>
  T at(int64_t i) const {
    T value;
    std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
  bool is_float() const { return type == Element::f32 || type == Element::f16 || type == Element::bf16; }
  // Element i as it is stored.
  float stored(int64_t i) const {
    switch (type) {
      case Element::f32:
        return at<float>(i);
      case Element::i8:
        return at<int8_t>(i);
      case Element::i16:
        return at<int16_t>(i);
      case Element::i32:
        return static_cast<float>(at<int32_t>(i));
      case Element::f16:
        return float_from_f16(at<uint16_t>(i));
      case Element::bf16:
        return static_cast<float>(at<BFloat16>(i));
    }
    return 0;
  }
};

// Strings end with a 0, which their length counts.
std::string read_string(ByteReader& in) {
  const auto length = in.number<uint16_t>();
  std::string text(in.take(length));
  check(!text.empty() && text.back() == '\0' && text.find('\0') == text.size() - 1,
        "{}: byte {}: expected a name that ends with a 0", in.where(), in.at());
  text.pop_back();
  return text;
}

Element read_type(ByteReader& in, uint32_t version, const std::string& name) {
  const auto code = in.number<uint8_t>();
  if (version >= kTypedSince) {
    check(code <= static_cast<uint8_t>(Element::bf16), "{}: {}: the unknown type {}", in.where(), name, code);
    return static_cast<Element>(code);
  }
  check(code == 1 || code == 2 || code == 4, "{}: {}: elements of {} bytes are unknown", in.where(), name,
        code);
  return code == 1 ? Element::i8 : code == 2 ? Element::i16 : Element::f32;
}

Variable read_variable(ByteReader& in, uint32_t version, const std::string& name) {
  constexpr int kMostAxes = 6;  // as tensors have
  Variable v;
  const auto rank = in.number<uint8_t>();
  check(rank <= kMostAxes, "{}: {}: {} axes are more than {}", in.where(), name, rank, kMostAxes);
  uint64_t elements = 1;
  for (int i = 0; i < rank; ++i) {
    v.shape.push_back(in.number<uint32_t>());
    elements *= static_cast<uint64_t>(v.shape.back());
    check(elements <= in.left(), "{}: {}: its shape has more elements than the file has bytes", in.where(),
          name);
  }
  v.type = read_type(in, version, name);
  const auto size = in.number<uint32_t>();  // before version 4: a number of elements
  v.bytes = in.take(version >= kTypedSince ? size : uint64_t{size} * static_cast<uint64_t>(width_of(v.type)));
  check(v.bytes.size() == elements * static_cast<uint64_t>(width_of(v.type)),
        "{}: {}: {} bytes for a shape of {} elements", in.where(), name, v.bytes.size(), elements);
  return v;
}

using Variables = std::map<std::string, Variable>;

// The scales of a quantised variable: one for all or one for each row.
std::vector<float> scales_of(const Variables& all, const std::string& name, const Variable& v,
                             const std::string& where) {
  const auto found = all.find(name + std::string(kScale));
  check(found != all.end() && found->second.is_float(), "{}: {}: a variable of integers has no {}{}", where,
        name, name, kScale);
  const Variable& scale = found->second;
  check(scale.count() == 1 || scale.count() == v.shape[0], "{}: {}{}: {} scales for {} rows", where, name,
        kScale, scale.count(), v.shape[0]);
  std::vector<float> out;
  for (int64_t i = 0; i < scale.count(); ++i) {
    out.push_back(scale.stored(i));
    check(std::isfinite(out.back()) && out.back() != 0, "{}: {}{}: scale {} is {}", where, name, kScale, i,
          out.back());
  }
  return out;
}

Tensor in_f32(const Variable& v, const std::vector<float>& scales) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(v.count()));
  const int64_t rows = v.shape.empty() ? 1 : std::max<int64_t>(1, v.shape[0]), columns = v.count() / rows;
  for (int64_t i = 0; i < v.count(); ++i) {
    const float q = v.stored(i);
    values.push_back(scales.empty() ? q
                                    : q / scales[scales.size() == 1 ? 0 : static_cast<size_t>(i / columns)]);
  }
  return Tensor::of(Shape(std::span(v.shape)), values);
}

}  // namespace

bool is_ctranslate2(std::string_view bytes) {
  if (bytes.size() < 8) return false;
  uint32_t version = 0;
  std::memcpy(&version, bytes.data(), sizeof(version));
  return version >= 1 && version <= 32 && bytes[6] >= 'A' && bytes[6] <= 'Z';  // then a class's name
}

Ctranslate2File parse_ctranslate2(std::string_view bytes, const std::string& where) {
  ByteReader in(bytes, where);
  const auto version = in.number<uint32_t>();
  check(version >= kFirstVersion && version <= kLastVersion,
        "{}: version {} of CTranslate2's format is not supported ({} to {} are)", where, version,
        kFirstVersion, kLastVersion);
  Ctranslate2File file;
  file.spec = read_string(in);
  static_cast<void>(in.number<uint32_t>());  // the revision of that class
  Variables all;
  for (auto count = in.number<uint32_t>(); count > 0; --count) {
    const std::string name = read_string(in);
    check(all.emplace(name, read_variable(in, version, name)).second, "{}: {} appears twice", where, name);
  }
  for (auto count = version >= kAliasesSince ? in.number<uint32_t>() : 0; count > 0; --count) {
    const std::string alias = read_string(in), of = read_string(in);
    const auto found = all.find(of);
    check(found != all.end(), "{}: {} is said to be {}, which is not there", where, alias, of);
    const Variable copy = found->second;
    all.insert_or_assign(alias, copy);
  }
  check(in.left() == 0, "{}: {} bytes follow the last variable", where, in.left());
  for (const auto& [name, v] : all) {
    const bool is_scale = name.ends_with(kScale) && all.contains(name.substr(0, name.size() - kScale.size()));
    if (is_scale) continue;
    if (v.shape.empty() && !v.is_float())
      file.settings[name] = v.type == Element::i8    ? v.at<int8_t>(0)
                            : v.type == Element::i16 ? v.at<int16_t>(0)
                                                     : v.at<int32_t>(0);
    else
      file.tensors[name] =
          in_f32(v, v.is_float() || v.count() == 0 ? std::vector<float>() : scales_of(all, name, v, where));
  }
  return file;
}

}  // namespace qkv

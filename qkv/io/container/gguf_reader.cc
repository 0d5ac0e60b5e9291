#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "qkv/base/file.h"
#include "qkv/io/container/byte_reader.h"
#include "qkv/io/container/gguf.h"
#include "qkv/io/container/gguf_types.h"

namespace qkv {
namespace {

using gguf::kMaxRank;

constexpr uint64_t kMaxElements = uint64_t{1} << 27;  // in an array; vocabularies have 2^18
constexpr uint64_t kMaxExtent = uint64_t{1} << 48;
constexpr int64_t kMaxAlignment = int64_t{1} << 20;
// The least bytes that an entry takes: name, type, value; name, rank, type, offset.
constexpr uint64_t kLeastKey = 8 + 1 + 4 + 1, kLeastTensor = 8 + 1 + 4 + 4 + 8;

// A tensor's entry in the table: where its bytes are.
struct TensorEntry {
  std::string name;
  Shape shape;
  const gguf::TensorType* type = nullptr;
  uint64_t offset = 0, bytes = 0;  // in the data
};

// Reads one file. Messages begin with place_, which names the file and the entry at hand.
class GgufReader {
 public:
  GgufReader(std::string_view file, const std::string& where)
      : file_(file), where_(where), place_(where), in_(file, place_) {}

  Gguf read(const std::shared_ptr<const void>& owner);

 private:
  void read_header();
  std::string read_name(std::string_view kind, uint64_t most);
  uint64_t read_count(std::string_view things, uint64_t least_bytes);
  GgufValue::Type read_type();
  GgufValue read_value();
  void read_elements(GgufValue& value, uint64_t count);
  TensorEntry read_entry();
  Shape read_shape();
  void place_tensors(std::vector<TensorEntry>& entries, int64_t alignment);
  Weight tensor_of(const TensorEntry& entry, const std::shared_ptr<const void>& owner) const;

  std::string_view file_;
  const std::string& where_;
  std::string place_;
  ByteReader in_;
  uint64_t keys_ = 0, tensors_ = 0;
  std::string_view data_;  // the bytes of all tensors
};

void GgufReader::read_header() {
  check(file_.substr(0, gguf::kMagic.size()) == gguf::kMagic,
        "{}: not a GGUF file: it does not begin with 'GGUF'", where_);
  in_.take(gguf::kMagic.size());
  const auto version = in_.number<uint32_t>();
  check(version == 0 || (version & 0xFFFF) != 0,
        "{}: the file is big-endian; qkv reads little-endian files only: convert the model again", where_);
  check(version == 2 || version == 3, "{}: GGUF version {} is not supported (2 and 3 are)", where_, version);
  tensors_ = in_.number<uint64_t>();
  keys_ = in_.number<uint64_t>();
  check(keys_ <= in_.left() / kLeastKey, "{}: cut short: {} keys do not fit into {} bytes", where_, keys_,
        file_.size());
  check(tensors_ <= in_.left() / kLeastTensor, "{}: cut short: {} tensors do not fit into {} bytes", where_,
        tensors_, file_.size());
}

// A key or a tensor's name. From here on messages name it.
std::string GgufReader::read_name(std::string_view kind, uint64_t most) {
  const auto length = in_.number<uint64_t>();
  check(length >= 1 && length <= most, "{}: a name has 1 to {} bytes, got {}", place_, most, length);
  std::string name(in_.take(length));
  check(gguf::is_printable(name), "{}: its name has other characters than printable ASCII", place_);
  place_ = fmt::format("{}: {} '{}'", where_, kind, name);
  return name;
}

uint64_t GgufReader::read_count(std::string_view things, uint64_t least_bytes) {
  const auto count = in_.number<uint64_t>();
  check(count <= kMaxElements, "{}: at most {} {} are supported, got {}", place_, kMaxElements, things,
        count);
  check(count <= in_.left() / least_bytes, "{}: cut short: {} {} do not fit into the {} bytes left", place_,
        count, things, in_.left());
  return count;
}

GgufValue::Type GgufReader::read_type() {
  const auto code = in_.number<uint32_t>();
  check(code < gguf::kValueTypes, "{}: type {} of values is unknown (0 to {} are known)", place_, code,
        gguf::kValueTypes - 1);
  return static_cast<GgufValue::Type>(code);
}

GgufValue GgufReader::read_value() {
  using Type = GgufValue::Type;
  GgufValue value{.type = read_type()};
  uint64_t count = 1;
  if (value.type == Type::array) {
    value.is_array = true;
    value.type = read_type();
    check(value.type != Type::array, "{}: arrays of arrays are not supported", place_);
    uint64_t least = 8;  // a string's length
    gguf::visit_number(value.type, [&least](auto zero) { least = sizeof zero; });
    count = read_count(value.type == Type::string ? "strings" : "elements", least);
  }
  read_elements(value, count);
  return value;
}

void GgufReader::read_elements(GgufValue& value, uint64_t count) {
  if (value.type == GgufValue::Type::string) {
    value.strings.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      const auto length = in_.number<uint64_t>();
      check(length <= in_.left(), "{}: cut short: a string of {} bytes does not fit into the {} bytes left",
            place_, length, in_.left());
      value.strings.emplace_back(in_.take(length));
    }
    return;
  }
  gguf::visit_number(value.type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_floating_point_v<T>) {
      value.numbers.reserve(count);
      for (uint64_t i = 0; i < count; ++i) value.numbers.push_back(in_.number<T>());
    } else {
      value.integers.reserve(count);
      for (uint64_t i = 0; i < count; ++i) {
        const T number = in_.number<T>();
        if constexpr (std::is_same_v<T, uint64_t>)
          check(number <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()),
                "{}: integers above 2^63 - 1 are not supported, got {}", place_, number);
        value.integers.push_back(static_cast<int64_t>(number));
      }
    }
  });
  if (value.type == GgufValue::Type::boolean)
    for (const int64_t flag : value.integers)
      check(flag <= 1, "{}: a boolean is 0 or 1, got {}", place_, flag);
}

Shape GgufReader::read_shape() {
  const auto rank = in_.number<uint32_t>();
  check(rank <= kMaxRank, "{}: at most {} extents are supported, got {}", place_, kMaxRank, rank);
  std::array<int64_t, kMaxRank> extents{};
  for (uint32_t i = 0; i < rank; ++i) {
    const auto extent = in_.number<uint64_t>();
    check(extent >= 1 && extent <= kMaxExtent, "{}: an extent is 1 to 2^48, got {}", place_, extent);
    extents[rank - 1 - i] = static_cast<int64_t>(extent);
  }
  try {
    return Shape(std::span<const int64_t>(extents.data(), rank));
  } catch (const Error& e) {
    fail("{}: {}", place_, e.what());
  }
}

TensorEntry GgufReader::read_entry() {
  TensorEntry entry;
  entry.name = read_name("tensor", gguf::kMaxName);
  entry.shape = read_shape();
  const auto code = in_.number<uint32_t>();
  check(code < std::size(gguf::kTensorTypes), "{}: type {} of tensors is unknown", place_, code);
  entry.type = &gguf::kTensorTypes[code];
  entry.offset = in_.number<uint64_t>();
  const int64_t count = entry.shape.count();
  if (entry.type->dense) {
    entry.bytes = static_cast<uint64_t>(count * size_of(*entry.type->dense));
    return entry;
  }
  check(entry.type->blocks.has_value(), "{}: type {} is not supported", place_, entry.type->name);
  const BlockLayout& layout = layout_of(*entry.type->blocks);
  check(entry.shape.rank() > 0 && entry.shape[-1] % layout.elements == 0,
        "{}: rows of {} are no whole blocks of {} {} elements", place_, entry.shape, layout.elements,
        layout.name);
  entry.bytes = static_cast<uint64_t>(count / layout.elements * layout.bytes);
  return entry;
}

// Finds the data, and checks that each tensor has bytes of its own there.
void GgufReader::place_tensors(std::vector<TensorEntry>& entries, int64_t alignment) {
  const auto step = static_cast<uint64_t>(alignment);
  const uint64_t begin = gguf::align_up(in_.at(), step);
  data_ = begin <= file_.size() ? file_.substr(begin) : std::string_view();
  std::vector<const TensorEntry*> in_order;
  for (const TensorEntry& entry : entries) {
    check(entry.offset % step == 0, "{}: tensor '{}' begins at byte {} of the data, no multiple of {}",
          where_, entry.name, entry.offset, alignment);
    check(entry.offset <= data_.size() && entry.bytes <= data_.size() - entry.offset,
          "{}: cut short: tensor '{}' takes {} bytes from byte {} of the data on, the file has {} bytes of "
          "data",
          where_, entry.name, entry.bytes, entry.offset, data_.size());
    in_order.push_back(&entry);
  }
  std::sort(in_order.begin(), in_order.end(),
            [](const TensorEntry* a, const TensorEntry* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < in_order.size(); ++i)
    check(in_order[i - 1]->offset + in_order[i - 1]->bytes <= in_order[i]->offset,
          "{}: tensors '{}' and '{}' overlap", where_, in_order[i - 1]->name, in_order[i]->name);
}

Weight GgufReader::tensor_of(const TensorEntry& entry, const std::shared_ptr<const void>& owner) const {
  const auto* bytes = reinterpret_cast<const std::byte*>(data_.data()) + entry.offset;
  if (entry.type->blocks) return QuantizedTensor::borrow(entry.shape, *entry.type->blocks, bytes, owner);
  const DType dtype = *entry.type->dense;
  const Tensor tensor = Tensor::borrow(entry.shape, dtype, bytes, owner);
  const bool aligned = reinterpret_cast<uintptr_t>(bytes) % static_cast<uintptr_t>(size_of(dtype)) == 0;
  return aligned ? tensor : tensor.clone();
}

Gguf GgufReader::read(const std::shared_ptr<const void>& owner) {
  read_header();
  Gguf out;
  out.path = where_;
  out.metadata.reserve(keys_);
  for (uint64_t i = 0; i < keys_; ++i) {
    place_ = fmt::format("{}: key {} of {}", where_, i + 1, keys_);
    std::string key = read_name("key", gguf::kMaxKey);
    out.metadata.emplace_back(std::move(key), read_value());
  }
  out.index();  // rejects keys that are there twice
  const int64_t alignment =
      out.has(gguf::kAlignmentKey) ? out.integer(gguf::kAlignmentKey) : gguf::kAlignment;
  check(alignment >= 8 && alignment <= kMaxAlignment && (alignment & (alignment - 1)) == 0,
        "{}: key '{}': expected a power of two from 8 to {}, got {}", where_, gguf::kAlignmentKey,
        kMaxAlignment, alignment);
  std::vector<TensorEntry> entries;
  entries.reserve(tensors_);
  for (uint64_t i = 0; i < tensors_; ++i) {
    place_ = fmt::format("{}: tensor {} of {}", where_, i + 1, tensors_);
    entries.push_back(read_entry());
  }
  place_tensors(entries, alignment);
  out.tensors.reserve(tensors_);
  for (const TensorEntry& entry : entries) out.tensors.emplace_back(entry.name, tensor_of(entry, owner));
  out.index();  // rejects names that are there twice
  return out;
}

Gguf read_part(const std::string& path) {
  const auto file = MappedFile::open(path);
  return parse_gguf(file->data(), file->size(), file, path);
}

constexpr std::string_view kPart = "split.no", kParts = "split.count", kAllTensors = "split.tensors.count";

// "NAME" and the end that all parts share but for their number: "-00002-of-00003.gguf".
std::string part_ending(int64_t part, int64_t parts) {
  return fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts);
}

// Checks what a part says of the whole: its number, from 0 on, and the number of parts.
void expect_part(const Gguf& file, int64_t part, int64_t parts) {
  check(file.integer(kPart) == part && file.integer(kParts) == parts,
        "{}: expected part {} of {}, but {} and {} say part {} of {}", file.path, part + 1, parts, kPart,
        kParts, file.integer(kPart) + 1, file.integer(kParts));
}

// All parts of a split model of which one was read.
Gguf join_parts(Gguf given, int64_t parts) {
  const int64_t part = given.integer(kPart);
  check(part >= 0 && part < parts && parts <= 99999, "{}: {} and {} say part {} of {}", given.path, kPart,
        kParts, part + 1, parts);
  const std::string ending = part_ending(part, parts);
  check(given.path.ends_with(ending), "{}: is part {} of {}: its name must end in '{}'", given.path, part + 1,
        parts, ending);
  const std::string name = given.path.substr(0, given.path.size() - ending.size());
  const int64_t tensors = given.integer(kAllTensors);
  Gguf all;
  for (int64_t i = 0; i < parts; ++i) {
    const std::string path = name + part_ending(i, parts);
    check(i == part || file_exists(path), "{}: part {} of {} is missing; all parts lie in one folder", path,
          i + 1, parts);
    Gguf next = i == part ? std::exchange(given, {}) : read_part(path);
    expect_part(next, i, parts);
    check(next.integer(kAllTensors) == tensors, "{}: {} is {}, but {} in another part", path, kAllTensors,
          next.integer(kAllTensors), tensors);
    if (i == 0) {
      all.path = path;
      all.metadata = std::move(next.metadata);
    }
    std::move(next.tensors.begin(), next.tensors.end(), std::back_inserter(all.tensors));
  }
  check(std::ssize(all.tensors) == tensors, "{}: {} is {}, but the parts hold {} tensors", all.path,
        kAllTensors, tensors, all.tensors.size());
  std::erase_if(all.metadata, [](const auto& entry) {
    return entry.first == kPart || entry.first == kParts || entry.first == kAllTensors;
  });
  all.index();
  return all;
}

}  // namespace

Gguf parse_gguf(const std::byte* data, size_t size, const std::shared_ptr<const void>& owner,
                const std::string& where) {
  return GgufReader({reinterpret_cast<const char*>(data), size}, where).read(owner);
}

Gguf read_gguf(const std::string& path) {
  Gguf file = read_part(path);
  const int64_t parts = file.has(kParts) ? file.integer(kParts) : 0;
  return parts > 1 ? join_parts(std::move(file), parts) : file;
}

}  // namespace qkv

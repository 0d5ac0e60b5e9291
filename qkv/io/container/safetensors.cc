#include "qkv/io/container/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"

namespace qkv {
namespace {

constexpr size_t kMaxHeader = size_t{100} << 20;  // as in the reference implementation

struct NamedType {
  std::string_view name;
  DType dtype;
};
constexpr NamedType kTypes[] = {{"F32", DType::f32}, {"BF16", DType::bf16}, {"F16", DType::f16},
                                {"F64", DType::f64}, {"I64", DType::i64},   {"I32", DType::i32},
                                {"U8", DType::u8},   {"BOOL", DType::u8}};

DType type_from_name(const std::string& name, const std::string& where) {
  for (const auto& t : kTypes)
    if (t.name == name) return t.dtype;
  fail("{}: dtype '{}' is not supported (F32, BF16, F16, F64, I64, I32, U8, BOOL are)", where, name);
}

std::string_view name_of_type(DType dtype) {
  for (const auto& t : kTypes)
    if (t.dtype == dtype) return t.name;
  return "?";
}

Shape parse_shape(const JsonField& entry, const std::string& where) {
  const std::vector<int64_t> extents = entry["shape"].integers(0, (int64_t{1} << 48) - 1);
  check(extents.size() <= Shape::kMaxRank, "{}: shape: at most {} axes are supported, got {}", where,
        Shape::kMaxRank, extents.size());
  try {
    return Shape(extents);
  } catch (const Error& e) {
    fail("{}: {}", where, e.what());
  }
}

}  // namespace

TensorFile parse_safetensors(const std::byte* data, size_t size, const std::shared_ptr<const void>& owner,
                             const std::string& where) {
  check(size >= 8, "{}: truncated: expected a safetensors file of at least 8 bytes, got {}", where, size);
  uint64_t header_size = 0;
  std::memcpy(&header_size, data, 8);
  check(header_size <= kMaxHeader && header_size <= size - 8,
        "{}: not a safetensors file, or cut short: its header would take {} bytes, the file has {}", where,
        header_size, size);
  const Json header = parse_json({reinterpret_cast<const char*>(data) + 8, header_size}, where);
  const std::byte* payload = data + 8 + header_size;
  const auto payload_size = static_cast<int64_t>(size - 8 - header_size);

  TensorFile out;
  struct Extent {
    int64_t begin, end;
    std::string name;
  };
  std::vector<Extent> extents;
  for (const auto& [name, entry] : JsonField(header, where + ": header").object().items()) {
    if (name == "__metadata__") {
      const JsonField metadata(entry, where + ": __metadata__");
      for (const auto& [key, value] : metadata.object().items()) out.metadata[key] = metadata[key].string();
      continue;
    }
    const std::string at = fmt::format("{}: tensor '{}'", where, name);
    const JsonField field(entry, at);
    const DType dtype = type_from_name(field["dtype"].string(), at);
    const Shape shape = parse_shape(field, at);
    const std::vector<int64_t> offsets =
        field["data_offsets"].integers(0, std::numeric_limits<int64_t>::max());
    check(offsets.size() == 2 && offsets[0] <= offsets[1] && offsets[1] <= payload_size,
          "{}: data_offsets must lie within the {} bytes of data", at, payload_size);
    check(offsets[1] - offsets[0] == shape.count() * size_of(dtype),
          "{}: {} {} takes {} bytes, data_offsets hold {}", at, name_of(dtype), shape,
          shape.count() * size_of(dtype), offsets[1] - offsets[0]);
    extents.push_back({offsets[0], offsets[1], name});
    const std::byte* bytes = payload + offsets[0];
    if (reinterpret_cast<uintptr_t>(bytes) % static_cast<uintptr_t>(size_of(dtype)) == 0) {
      out.tensors.emplace(name, Tensor::borrow(shape, dtype, bytes, owner));
    } else {
      out.tensors.emplace(name, Tensor::borrow(shape, dtype, bytes, owner).clone());
    }
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  int64_t end = 0;
  for (const Extent& e : extents) {
    check(e.begin == end, "{}: tensor '{}' overlaps another or leaves a gap: starts at byte {}, expected {}",
          where, e.name, e.begin, end);
    end = e.end;
  }
  check(end == payload_size, "{}: {} bytes of data belong to no tensor", where, payload_size - end);
  return out;
}

TensorFile read_safetensors(const std::string& path) {
  const auto file = MappedFile::open(path);
  TensorFile out = parse_safetensors(file->data(), file->size(), file, path);
  out.mapped = true;
  return out;
}

SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<Entry>& entries,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)) {
  OrderedJson header = OrderedJson::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const Entry& e : entries) {
    check(!header.contains(e.name), "{}: tensor '{}' given twice", path_, e.name);
    std::vector<int64_t> shape;
    for (int i = 0; i < e.shape.rank(); ++i) shape.push_back(e.shape[i]);
    const int64_t end = left_ + e.shape.count() * size_of(e.dtype);
    header[e.name] = {{"dtype", name_of_type(e.dtype)}, {"shape", shape}, {"data_offsets", {left_, end}}};
    left_ = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data
  const uint64_t length = text.size();
  out_.open(path_, std::ios::binary | std::ios::trunc);
  out_.write(reinterpret_cast<const char*>(&length), 8);
  out_.write(text.data(), static_cast<std::streamsize>(text.size()));
  expect_written();
}

void SafetensorsWriter::expect_written() const {
  check(out_.good(), "{}: cannot be written: {}", path_, std::strerror(errno));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  left_ -= std::ssize(bytes);
  check(left_ >= 0, "{}: {} bytes more than its tensors have", path_, -left_);
  out_.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  expect_written();
}

void SafetensorsWriter::finish() {
  check(left_ == 0, "{}: {} bytes of its tensors are missing", path_, left_);
  out_.flush();
  expect_written();
}

void write_safetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype(), tensor.shape()});
  SafetensorsWriter out(path, entries, metadata);
  for (const auto& [name, tensor] : tensors) {
    const auto bytes = tensor.value_bytes();
    out.write({bytes.data(), bytes.size()});
  }
  out.finish();
}

}  // namespace qkv

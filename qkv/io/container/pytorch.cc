#include "qkv/io/container/pytorch.h"

#include <algorithm>
#include <cstring>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/io/container/pickle.h"

namespace qkv {
namespace {

using Kind = PickleValue::Kind;

// ---- Zip archives, as torch.save() writes them: members are stored, not compressed

uint64_t little_endian(std::string_view bytes, size_t at, size_t width) {
  uint64_t n = 0;
  for (size_t i = 0; i < width; ++i) n |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return n;
}

// The archive's members by their names without the first folder.
std::map<std::string, std::string_view> members_of(std::string_view file, const std::string& where) {
  constexpr size_t kEnd = 22, kEnd64 = 56, kLocator = 20, kEntry = 46, kLocal = 30;
  constexpr uint32_t kNot = 0xFFFFFFFF;
  const auto expect = [&](bool good) { check(good, "{}: the zip archive is damaged or cut short", where); };
  const size_t found = file.size() < kEnd ? file.npos : file.rfind("PK\5\6", file.size() - kEnd);
  expect(found != file.npos);
  uint64_t count = little_endian(file, found + 10, 2), at = little_endian(file, found + 16, 4);
  if (at == kNot || count == 0xFFFF) {  // zip64
    expect(found >= kLocator && file.substr(found - kLocator, 4) == "PK\6\7");
    const uint64_t end64 = little_endian(file, found - kLocator + 8, 8);
    expect(end64 <= file.size() && file.size() - end64 >= kEnd64 && file.substr(end64, 4) == "PK\6\6");
    count = little_endian(file, end64 + 32, 8);
    at = little_endian(file, end64 + 48, 8);
  }
  std::map<std::string, std::string_view> members;
  for (uint64_t i = 0; i < count; ++i) {
    expect(at <= file.size() && file.size() - at >= kEntry &&
           file.substr(at, 4) == std::string_view("PK\1\2"));
    const uint64_t method = little_endian(file, at + 10, 2), name_size = little_endian(file, at + 28, 2),
                   extra_size = little_endian(file, at + 30, 2), comment = little_endian(file, at + 32, 2);
    uint64_t stored = little_endian(file, at + 20, 4), size = little_endian(file, at + 24, 4),
             local = little_endian(file, at + 42, 4);
    expect(file.size() - at - kEntry >= name_size + extra_size + comment);
    std::string name(file.substr(at + kEntry, name_size));
    // The extra field of zip64 has those of the numbers that do not fit, in this order.
    const std::string_view extra = file.substr(at + kEntry + name_size, extra_size);
    for (size_t e = 0; e + 4 <= extra.size();) {
      const uint64_t tag = little_endian(extra, e, 2), length = little_endian(extra, e + 2, 2);
      expect(extra.size() - e - 4 >= length);
      size_t next = e + 4;
      for (uint64_t* wide : {&size, &stored, &local})
        if (tag == 1 && *wide == kNot) {
          expect(e + 4 + length - next >= 8);
          *wide = little_endian(extra, next, 8);
          next += 8;
        }
      e += 4 + length;
    }
    at += kEntry + name_size + extra_size + comment;
    check(method == 0 && stored == size, "{}: {}: compressed members are not supported", where, name);
    expect(local <= file.size() && file.size() - local >= kLocal &&
           file.substr(local, 4) == std::string_view("PK\3\4"));
    const uint64_t begin =
        local + kLocal + little_endian(file, local + 26, 2) + little_endian(file, local + 28, 2);
    expect(begin <= file.size() && size <= file.size() - begin);
    const size_t slash = name.find('/');
    if (slash != name.npos) name.erase(0, slash + 1);
    members[name] = file.substr(begin, size);
  }
  return members;
}

// ---- Tensors

struct StorageType {
  std::string_view name;
  DType dtype;
};
constexpr StorageType kStorages[] = {
    {"torch.FloatStorage", DType::f32},     {"torch.HalfStorage", DType::f16},
    {"torch.BFloat16Storage", DType::bf16}, {"torch.DoubleStorage", DType::f64},
    {"torch.LongStorage", DType::i64},      {"torch.IntStorage", DType::i32},
    {"torch.ByteStorage", DType::u8},       {"torch.BoolStorage", DType::u8}};

// Tensors of one pickle; `storages` has the bytes of each key.
class Reader {
 public:
  // `room`: bytes that copies of tensors may take.
  Reader(const Pickle& pickle, const std::map<std::string, std::string_view>& storages,
         std::shared_ptr<const void> owner, std::string where, size_t room)
      : pickle_(pickle),
        storages_(storages),
        owner_(std::move(owner)),
        where_(std::move(where)),
        room_(static_cast<int64_t>(room)) {}

  TensorFile read() {
    check(pickle_.root().kind == Kind::dictionary, "{}: expected a dictionary of tensors", where_);
    add(pickle_.root(), "", 0);
    check(!out_.tensors.empty(), "{}: there are no tensors", where_);
    return std::move(out_);
  }

 private:
  static constexpr size_t kMostEntries = size_t{1} << 20, kLongestName = 1024;
  static constexpr std::string_view kTypes[] = {"torch.float32", "torch.float16", "torch.bfloat16",
                                                "torch.float64", "torch.int64",   "torch.int32",
                                                "torch.uint8",   "torch.bool"};

  void add(const PickleValue& dictionary, const std::string& prefix, int depth) {
    constexpr int kDeepest = 16;
    check(depth < kDeepest, "{}: {}: dictionaries within dictionaries more than {} deep", where_, prefix,
          kDeepest);
    for (size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
      const PickleValue &key = pickle_.item(dictionary, i), &value = pickle_.item(dictionary, i + 1);
      // Entries that are reached through several dictionaries count each time.
      check(++entries_ <= kMostEntries, "{}: more than {} entries", where_, kMostEntries);
      const std::string name = prefix + (key.kind == Kind::integer ? std::to_string(key.integer) : key.text);
      check(name.size() <= kLongestName &&
                std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; }),
            "{}: entry {}: expected a name of at most {} plain characters", where_, i / 2, kLongestName);
      if (value.kind == Kind::dictionary) add(value, name + ".", depth + 1);
      if (value.kind == Kind::call) add_tensor(name, value);
      expect_plain(name, value);
    }
  }
  // Other classes would have to be executed.
  void expect_plain(const std::string& name, const PickleValue& value) const {
    const bool is_type =
        value.kind == Kind::global && std::ranges::find(kTypes, value.text) != std::end(kTypes);
    check(is_type || (value.kind != Kind::global && value.kind != Kind::persistent),
          "{}: '{}' is a {}: only tensors and plain values are read", where_, name,
          value.kind == Kind::global ? value.text : "storage");
  }
  void add_tensor(const std::string& name, const PickleValue& call) {
    const std::string at = fmt::format("{}: tensor '{}'", where_, name);
    const std::string& function = pickle_.item(call, 0).text;
    const PickleValue& arguments = pickle_.item(call, 1);
    if (function == "torch._utils._rebuild_parameter") {
      check(!arguments.items.empty() && pickle_.item(arguments, 0).kind == Kind::call, "{}: no tensor in it",
            at);
      const PickleValue& inner = pickle_.item(arguments, 0);
      check(pickle_.item(inner, 0).text != function, "{}: a parameter of a parameter", at);
      return add_tensor(name, inner);
    }
    if (function == "torch.Size" || function == "torch.device") return;
    check(function == "torch._utils._rebuild_tensor_v2" || function == "torch._utils._rebuild_tensor",
          "{}: is made by {}: only tensors and plain values are read", at, function);
    check(arguments.items.size() >= 4 && pickle_.item(arguments, 0).kind == Kind::persistent,
          "{}: expected a storage, an offset, a shape and strides", at);
    const PickleValue& storage = pickle_.item(pickle_.item(arguments, 0), 0);
    check(storage.kind == Kind::list && storage.items.size() >= 5 &&
              pickle_.item(storage, 1).kind == Kind::global,
          "{}: expected a storage with a type, a key and a size", at);
    const bool plain = (storage.items.size() < 6 || pickle_.item(storage, 5).kind == Kind::none) &&
                       (arguments.items.size() < 7 || pickle_.item(arguments, 6).items.empty());
    check(plain, "{}: views with properties of their own are not supported", at);
    const DType dtype = type_of(pickle_.item(storage, 1).text, at);
    const auto bytes = storages_.find(pickle_.item(storage, 2).text);
    check(bytes != storages_.end(), "{}: its storage '{}' is not in the file", at,
          pickle_.item(storage, 2).text);
    const auto elements = static_cast<int64_t>(bytes->second.size()) / size_of(dtype);
    const int64_t offset = integer(pickle_.item(arguments, 1), elements, at);
    const std::vector<int64_t> shape = integers(pickle_.item(arguments, 2), at),
                               strides = integers(pickle_.item(arguments, 3), at);
    check(shape.size() <= Shape::kMaxRank && strides.size() == shape.size(),
          "{}: at most {} axes with a stride each are supported", at, Shape::kMaxRank);
    check(
        out_.tensors.emplace(name, tensor(dtype, bytes->second, elements, offset, shape, strides, at)).second,
        "{}: given twice", at);
  }

  Tensor tensor(DType dtype, std::string_view bytes, int64_t elements, int64_t offset,
                const std::vector<int64_t>& extents, const std::vector<int64_t>& strides,
                const std::string& at) {
    const int64_t width = size_of(dtype);
    if (std::ranges::find(extents, 0) != extents.end()) {
      check(std::ranges::all_of(extents, [](int64_t n) { return n < int64_t{1} << 12; }),
            "{}: too large a shape", at);
      return Tensor::zeros(Shape(extents), dtype);
    }
    int64_t count = 1, last = offset;
    bool contiguous = true;
    for (size_t i = extents.size(); i-- > 0;) {
      contiguous = contiguous && (extents[i] == 1 || strides[i] == count);
      check(count <= std::max(elements, room_ / width) / extents[i], "{}: more elements than its storage has",
            at);
      count *= extents[i];
    }
    for (size_t i = 0; i < extents.size(); ++i) {
      check(extents[i] == 1 || strides[i] <= elements / (extents[i] - 1), "{}: reaches beyond its storage",
            at);
      last += (extents[i] - 1) * strides[i];
      check(last <= elements, "{}: reaches beyond its storage", at);
    }
    check(last < elements, "{}: reaches beyond its storage", at);
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data()) + offset * width;
    const bool aligned = reinterpret_cast<uintptr_t>(first) % static_cast<uintptr_t>(width) == 0;
    if (contiguous && aligned) return Tensor::borrow(Shape(extents), dtype, first, owner_);
    check(count <= room_ / width, "{}: copies of its tensors would be larger than the file", at);
    room_ -= count * width;
    if (contiguous) return Tensor::borrow(Shape(extents), dtype, first, owner_).clone();
    std::vector<std::byte> in_order(static_cast<size_t>(count * width));
    std::vector<int64_t> index(extents.size());
    for (std::byte* to = in_order.data(); to < in_order.data() + in_order.size(); to += width) {
      int64_t from = 0;
      for (size_t a = 0; a < extents.size(); ++a) from += index[a] * strides[a];
      std::memcpy(to, first + from * width, static_cast<size_t>(width));
      for (size_t a = extents.size(); a-- > 0 && ++index[a] == extents[a];) index[a] = 0;
    }
    return Tensor::borrow(Shape(extents), dtype, in_order.data(), nullptr).clone();
  }

  static DType type_of(const std::string& name, const std::string& at) {
    for (const StorageType& s : kStorages)
      if (s.name == name) return s.dtype;
    fail("{}: {} is not supported (Float, Half, BFloat16, Double, Long, Int, Byte and Bool are)", at, name);
  }
  static int64_t integer(const PickleValue& value, int64_t most, const std::string& at) {
    check(value.kind == Kind::integer && value.integer >= 0 && value.integer <= most,
          "{}: expected a number from 0 to {}", at, most);
    return value.integer;
  }
  std::vector<int64_t> integers(const PickleValue& value, const std::string& at) const {
    constexpr int64_t kLongest = int64_t{1} << 48;
    const PickleValue& list = value.kind == Kind::call && pickle_.item(value, 0).text == "torch.Size" &&
                                      !pickle_.item(value, 1).items.empty()
                                  ? pickle_.item(pickle_.item(value, 1), 0)
                                  : value;
    check(list.kind == Kind::list, "{}: expected a tuple of numbers", at);
    std::vector<int64_t> out;
    for (size_t i = 0; i < list.items.size(); ++i)
      out.push_back(integer(pickle_.item(list, i), kLongest, at));
    return out;
  }

  const Pickle& pickle_;
  const std::map<std::string, std::string_view>& storages_;
  std::shared_ptr<const void> owner_;
  std::string where_;
  int64_t room_;
  size_t entries_ = 0;
  TensorFile out_;
};

TensorFile parse_zip(std::string_view file, const std::shared_ptr<const void>& owner,
                     const std::string& where) {
  const auto members = members_of(file, where);
  const auto table = members.find("data.pkl");
  check(table != members.end(), "{}: a zip archive, but not of torch.save(): it has no data.pkl", where);
  if (const auto order = members.find("byteorder"); order != members.end())
    check(order->second == "little", "{}: only little-endian numbers are supported", where);
  std::map<std::string, std::string_view> storages;
  for (const auto& [name, bytes] : members)
    if (name.starts_with("data/")) storages.emplace(name.substr(5), bytes);
  const Pickle pickle(table->second, where + ": data.pkl");
  return Reader(pickle, storages, owner, where, file.size()).read();
}

// Before 1.6: pickles of a magic number, a version, the system's sizes, the table and the storages' keys;
// then each storage's number of elements and its bytes. A storage's type is said where a tensor uses it.
TensorFile parse_older(std::string_view file, const std::shared_ptr<const void>& owner,
                       const std::string& where) {
  constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
  size_t at = 0;
  const auto next = [&] {
    Pickle pickle(file.substr(at), where);
    at += pickle.size();
    return pickle;
  };
  const Pickle magic = next();
  check(magic.root().kind == Kind::text && magic.root().text == kMagic, "{}: not a file of torch.save()",
        where);
  const Pickle version = next();
  check(version.root().kind == Kind::integer && version.root().integer == 1001,
        "{}: this version of torch.save()'s files is not supported", where);
  next();
  const Pickle table = next(), keys = next();
  // The width of each storage's elements, from the table.
  std::map<std::string, int64_t> widths;
  for (uint32_t i = 0; i < table.count(); ++i) {
    if (table.at(i).kind != Kind::persistent) continue;
    const PickleValue& s = table.item(table.at(i), 0);
    if (s.kind != Kind::list || s.items.size() < 5) continue;
    for (const StorageType& known : kStorages)
      if (table.item(s, 1).text == known.name) widths[table.item(s, 2).text] = size_of(known.dtype);
  }
  check(keys.root().kind == Kind::list, "{}: expected the keys of its storages", where);
  std::map<std::string, std::string_view> storages;
  for (size_t i = 0; i < keys.root().items.size(); ++i) {
    const std::string& key = keys.item(keys.root(), i).text;
    check(widths.contains(key), "{}: storage '{}' has no type that is supported", where, key);
    check(file.size() - at >= 8, "{}: cut short before storage '{}'", where, key);
    const uint64_t elements = little_endian(file, at, 8), width = static_cast<uint64_t>(widths[key]);
    at += 8;
    check(elements <= (file.size() - at) / width, "{}: cut short in storage '{}'", where, key);
    storages[key] = file.substr(at, elements * width);
    at += elements * width;
  }
  return Reader(table, storages, owner, where, file.size()).read();
}

}  // namespace

TensorFile parse_pytorch(const std::byte* data, size_t size, const std::shared_ptr<const void>& owner,
                         const std::string& where) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  return file.starts_with("PK") ? parse_zip(file, owner, where) : parse_older(file, owner, where);
}

TensorFile read_pytorch(const std::string& path) {
  const auto file = MappedFile::open(path);
  TensorFile out = parse_pytorch(file->data(), file->size(), file, path);
  out.mapped = true;
  return out;
}

}  // namespace qkv

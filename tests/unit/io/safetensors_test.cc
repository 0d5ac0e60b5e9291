#include "qkv/io/container/safetensors.h"

#include <cstring>

#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::safetensors_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string s(8, '\0');
  std::memcpy(s.data(), &length, 8);
  return s + rest;
}
std::string file_of(const std::string& header, size_t data) {
  return with_length(header.size(), header + std::string(data, 'x'));
}

// Expects the file to be refused by name, for this reason.
void refuse(const std::string& contents, std::initializer_list<std::string> parts) {
  const ScratchDir dir;
  const std::string path = dir.write("bad.safetensors", contents);
  expect_error([&] { read_safetensors(path); }, {path});
  expect_error([&] { read_safetensors(path); }, parts);
}
void refuse_header(const std::string& header, size_t data, std::initializer_list<std::string> parts) {
  refuse(file_of(header, data), parts);
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

TEST(Safetensors, RoundTripOfEveryType) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const DType t : {DType::u8, DType::bf16, DType::f16, DType::f32, DType::i32, DType::f64, DType::i64})
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 5}, Shape{1, 2, 3, 1}, Shape{0, 4}}) {
      Tensor x = Tensor::empty(shape, t);
      for (size_t i = 0; i < x.bytes(); ++i)
        static_cast<unsigned char*>(x.raw())[i] = static_cast<unsigned char>(37 * i + tensors.size());
      tensors.emplace_back(std::string(name_of(t)) + shape.text() + " \"\\\xC3\xA9",
                           x);  // names are any text
    }
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"note", "a\nb"}};
  write_safetensors(path, tensors, metadata);
  const TensorFile file = read_safetensors(path);
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, x] : tensors) {
    const Tensor& y = file.tensors.at(name);
    EXPECT_EQ(y.shape(), x.shape()) << name;
    EXPECT_EQ(y.dtype(), x.dtype()) << name;
    EXPECT_EQ(std::memcmp(x.raw(), y.raw(), x.bytes()), 0) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(y.raw()) % static_cast<uintptr_t>(size_of(y.dtype())), 0U) << name;
  }
}

TEST(Safetensors, TensorsOutliveTheFileObject) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  write_safetensors(path, {{"x", Tensor::of({3}, std::vector<float>{1, 2, 3})}});
  Tensor x;
  { x = read_safetensors(path).tensors.at("x"); }
  std::filesystem::remove(path);
  EXPECT_EQ(x.data<float>()[2], 3);
}

TEST(Safetensors, WritesPieces) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.safetensors", whole = dir.path() + "/whole.safetensors";
  const Tensor x = Tensor::of({3}, std::vector<float>{1, 2, 3}),
               y = Tensor::of({1, 2}, std::vector<float>{4, 5});
  write_safetensors(whole, {{"x", x}, {"y", y}}, {{"format", "pt"}});
  SafetensorsWriter out(path, {{"x", DType::f32, {3}}, {"y", DType::f32, {1, 2}}}, {{"format", "pt"}});
  const std::vector<float> values = {1, 2, 3, 4, 5};
  const auto bytes = std::as_bytes(std::span(values));
  out.write(bytes.first(9));
  out.write(bytes.subspan(9, 10));
  expect_error([&] { out.finish(); }, {path, "1 bytes", "missing"});
  out.write(bytes.subspan(19));
  out.finish();
  EXPECT_EQ(read_file(path), read_file(whole));
  expect_error([&] { out.write(bytes.first(1)); }, {path, "1 bytes more"});
}

TEST(Safetensors, NoTensorsAndOddAlignment) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.safetensors";
  write_safetensors(path, {});
  EXPECT_TRUE(read_safetensors(path).tensors.empty());
  // A header of odd length puts the data where no float may lie.
  std::string header = "{\"x\":" + entry("\"F32\"", "[2]", "[0,8]") + "}";
  while (header.size() % 4 != 1) header += ' ';
  std::string contents = file_of(header, 8);
  const float values[] = {1.5F, -2};
  std::memcpy(contents.data() + 8 + header.size(), values, 8);
  EXPECT_EQ(read_safetensors(dir.write("odd.safetensors", contents)).tensors.at("x").data<float>()[1], -2);
  // Tensors in another order than their bytes, and BOOL as bytes.
  const auto file = read_safetensors(
      dir.write("order.safetensors", file_of("{\"b\":" + entry("\"BOOL\"", "[3]", "[2,5]") +
                                                 ",\"a\":" + entry("\"U8\"", "[2]", "[0,2]") + "}",
                                             5)));
  EXPECT_EQ(file.tensors.at("b").dtype(), DType::u8);
}

TEST(Safetensors, TruncatedFilesAreRefused) {
  refuse("", {"bad.safetensors"});
  refuse("1234567", {"truncated", "7"});
  refuse(with_length(1000, "{}"), {"header would take 1000 bytes", "the file has 10"});
  refuse(with_length(~uint64_t{0}, "{}"), {"header"});
  refuse(with_length(~uint64_t{0} - 7, "{}"), {"header"});
  refuse(with_length(uint64_t{1} << 63, "{}"), {"header"});
  const std::string good = "{\"x\":" + entry("\"F32\"", "[2]", "[0,8]") + "}";
  refuse_header(good, 7, {"tensor 'x'", "data_offsets", "7 bytes"});
  refuse_header(good, 0, {"tensor 'x'", "data_offsets"});
  refuse_header(good, 9, {"1 bytes", "no tensor"});
  expect_error([] { read_safetensors("/nonexistent/x.safetensors"); }, {"/nonexistent/x.safetensors"});
}

TEST(Safetensors, OffsetsThatOverlapOrGapAreRefused) {
  const auto two = [](const char* a, const char* b) {
    return "{\"a\":" + entry("\"U8\"", "[4]", a) + ",\"b\":" + entry("\"U8\"", "[4]", b) + "}";
  };
  refuse_header(two("[0,4]", "[2,6]"), 6, {"'b'", "overlaps"});
  refuse_header(two("[0,4]", "[0,4]"), 4, {"overlaps"});
  refuse_header(two("[0,4]", "[5,9]"), 9, {"'b'", "gap"});
  refuse_header(two("[1,5]", "[5,9]"), 9, {"'a'", "gap"});
  refuse_header(two("[4,0]", "[4,8]"), 8, {"'a'", "data_offsets"});
  refuse_header(two("[-4,0]", "[0,4]"), 4, {"'a'", "data_offsets"});
  refuse_header(two("[0,4]", "[4]"), 8, {"'b'", "data_offsets"});
  refuse_header(two("[0,4]", "[4,6,8]"), 8, {"'b'", "data_offsets"});
  refuse_header(two("[0,4]", "[4.0,8.0]"), 8, {"'b'", "data_offsets", "integer"});
  refuse_header(two("[0,4]", "[18446744073709551612,18446744073709551615]"), 8, {"'b'", "data_offsets"});
  refuse_header(two("[0,4]", "[9223372036854775804,9223372036854775807]"), 8, {"'b'", "data_offsets"});
}

TEST(Safetensors, ShapesThatLieAreRefused) {
  const auto one = [](const char* shape, const char* offsets) {
    return "{\"x\":" + entry("\"F32\"", shape, offsets) + "}";
  };
  refuse_header(one("[3]", "[0,8]"), 8, {"'x'", "takes 12 bytes", "hold 8"});
  refuse_header(one("[-2]", "[0,8]"), 8, {"'x'", "shape", "-2"});
  refuse_header(one("[-1,-2]", "[0,8]"), 8, {"'x'", "shape"});
  refuse_header(one("[4294967296,4294967296]", "[0,0]"), 0, {"'x'"});  // 2^64 elements: 0 after overflow
  refuse_header(one("[4294967296,1073741824]", "[0,0]"), 0, {"'x'"});  // 2^62 elements, 2^64 bytes
  refuse_header(one("[281474976710655,281474976710655,281474976710655,281474976710655]", "[0,8]"), 8,
                {"'x'"});
  refuse_header(one("[9223372036854775807]", "[0,8]"), 8, {"'x'", "shape"});
  refuse_header(one("[18446744073709551615]", "[0,8]"), 8, {"'x'", "shape"});
  refuse_header(one("[1,1,1,1,1,2]", "[0,8]"), 8, {"'x'", "shape", "5 axes"});
  refuse_header(one("2", "[0,8]"), 8, {"'x'", "shape", "list of integers"});
  refuse_header(one("[2.0]", "[0,8]"), 8, {"'x'", "shape", "integer"});
  refuse_header(one("[\"2\"]", "[0,8]"), 8, {"'x'", "shape"});
}

TEST(Safetensors, TypesThatAreUnknownOrMistypedAreRefused) {
  for (const char* dtype : {"\"F8_E4M3\"", "\"f32\"", "\"\""})
    refuse_header("{\"x\":" + entry(dtype, "[2]", "[0,8]") + "}", 8, {"'x'", "dtype", "not supported"});
  refuse_header("{\"x\":" + entry("4", "[2]", "[0,8]") + "}", 8, {"'x'", "dtype", "string"});
  refuse_header("{\"x\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, {"'x'", "dtype", "missing"});
  refuse_header("{\"x\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, {"'x'", "shape", "missing"});
  refuse_header("{\"x\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, {"'x'", "data_offsets", "missing"});
  refuse_header("{\"x\":3}", 8, {"'x'", "object"});
}

TEST(Safetensors, HeadersThatAreNoObjectAreRefused) {
  for (const char* header : {"[]", "3", "\"x\"", "null", "true"}) refuse_header(header, 0, {"object"});
  for (const char* header : {"", "{", "{}}", "{\"x\"}", "nul", "{'x':1}", "\xFF\xFE", "{\"\xFF\":1}"})
    refuse_header(header, 0, {"not valid JSON"});
  const std::string x = "\"x\":" + entry("\"U8\"", "[1]", "[0,1]");
  refuse_header("{" + x + "," + x + "}", 1, {"\"x\"", "twice"});
  refuse_header(std::string(100'000, '['), 0, {"nested"});
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += "{\"a\":";
  refuse_header(deep, 0, {"nested"});
  refuse_header("{\"__metadata__\":3}", 0, {"__metadata__", "object"});
  refuse_header("{\"__metadata__\":{\"a\":3}}", 0, {"__metadata__", "a", "string"});
}

TEST(Safetensors, WritingRefusesDoubleNamesAndBadPaths) {
  const Tensor x = Tensor::zeros({1}, DType::f32);
  const ScratchDir dir;
  expect_error([&] { write_safetensors(dir.path() + "/x", {{"a", x}, {"a", x}}); }, {"'a'", "twice"});
  expect_error([&] { write_safetensors("/nonexistent/x", {{"a", x}}); }, {"/nonexistent/x"});
}

}  // namespace
}  // namespace qkv::safetensors_test

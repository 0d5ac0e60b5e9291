// Files and values that the reader and the writer reject, each by its message.
// Covers: qkv/io/container/gguf_reader.cc, qkv/io/container/gguf_writer.cc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/expect_error.h"
#include "tests/unit/io/gguf_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::gguf_refusals_test {
namespace {

using namespace testing;  // NOLINT: the parts of a file
using Type = GgufValue::Type;

void refuse(const std::string& file, const std::string& message) {
  expect_error([&] { parse(file); }, {"model.gguf: " + message});
}
void refuse_key(const std::string& key, const std::string& message) {
  refuse(GgufBytes{.keys = {key}}.text(), message);
}
// A file of these tensors with 64 bytes of data.
void refuse_tensors(const std::vector<TensorBytes>& tensors, const std::string& message) {
  GgufBytes bytes{.data = std::string(64, '\0')};
  for (const TensorBytes& tensor : tensors) bytes.tensors.push_back(tensor_bytes(tensor));
  refuse(bytes.text(), message);
}

TEST(GgufRefusals, Headers) {
  refuse("", "not a GGUF file");
  refuse("GGML\3\0\0\0", "not a GGUF file");
  refuse("GGU", "not a GGUF file");
  refuse("GGUF", "it ends after 4 bytes, within 4 bytes from 4 on");
  refuse("GGUF" + bytes_of(uint32_t{3}) + bytes_of(uint64_t{0}), "it ends after 16 bytes");
  for (const uint32_t version : {0, 1, 4, 0x00030003})
    refuse(GgufBytes{.version = version}.text(),
           fmt::format("GGUF version {} is not supported (2 and 3 are)", version));
  for (const uint32_t version : {0x02000000, 0x03000000})
    refuse(GgufBytes{.version = version}.text(),
           "the file is big-endian; qkv reads little-endian files only");
  const std::string begin = "GGUF" + bytes_of(uint32_t{3});
  for (const uint64_t count : {uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}}) {
    refuse(begin + bytes_of(count) + bytes_of(uint64_t{0}),
           fmt::format("cut short: {} tensors do not fit into 24 bytes", count));
    refuse(begin + bytes_of(uint64_t{0}) + bytes_of(count),
           fmt::format("cut short: {} keys do not fit into 24 bytes", count));
  }
}

TEST(GgufRefusals, Keys) {
  const auto key = [](std::string_view name) { return key_bytes(name, kU8, "\1"); };
  refuse_key(key("") + std::string(32, '\0'), "key 1 of 1: a name has 1 to 65535 bytes, got 0");
  refuse_key(key(std::string(65536, 'k')), "key 1 of 1: a name has 1 to 65535 bytes, got 65536");
  EXPECT_TRUE(parse(GgufBytes{.keys = {key(std::string(65535, 'k'))}}.text()).has(std::string(65535, 'k')));
  refuse_key(bytes_of(uint64_t{60000}) + "some bytes", "key 1 of 1: it ends after");
  refuse_key(bytes_of(~uint64_t{0}) + "some bytes", "key 1 of 1: a name has 1 to 65535 bytes, got 184467");
  for (const char* name : {"a\nb", "a\x7F", "\xC3\xA9", "\xFF"})
    refuse_key(key(name), "key 1 of 1: its name has other characters than printable ASCII");
  refuse(GgufBytes{.keys = {key("a"), key("b"), key("a")}}.text(), "key 'a' is there twice");
}

TEST(GgufRefusals, Values) {
  refuse_key(key_bytes("k", 13, "\1"), "key 'k': type 13 of values is unknown (0 to 12 are known)");
  refuse_key(key_bytes("k", ~0U, "\1"), "key 'k': type 4294967295 of values is unknown");
  refuse_key(array_bytes("k", 13, 1, "\1"), "key 'k': type 13 of values is unknown");
  refuse_key(array_bytes("k", kArray, 1, bytes_of(kU8) + bytes_of(uint64_t{1}) + "\1"),
             "key 'k': arrays of arrays are not supported");
  refuse_key(key_bytes("k", kBoolean, "\2"), "key 'k': a boolean is 0 or 1, got 2");
  refuse_key(array_bytes("k", kBoolean, 2, "\1\xFF"), "key 'k': a boolean is 0 or 1, got 255");
  refuse_key(key_bytes("k", kU64, bytes_of(uint64_t{1} << 63)),
             "key 'k': integers above 2^63 - 1 are not supported, got 9223372036854775808");
  const std::string cut = GgufBytes{.keys = {key_bytes("k", kU64, "")}}.text();
  refuse(cut.substr(0, 24 + 13) + "12345", "key 'k': it ends after 42 bytes, within 8 bytes from 37 on");
}

TEST(GgufRefusals, CountsThatTheFileCannotHold) {
  for (const uint32_t type : {kU8, kI16, kF32, kBoolean, kString, kF64})
    for (const uint64_t count : {(uint64_t{1} << 27) + 1, uint64_t{1} << 60, uint64_t{1} << 61, ~uint64_t{0}})
      refuse_key(array_bytes("k", type, count, std::string(40, '\0')),
                 fmt::format("key 'k': at most 134217728 {} are supported, got {}",
                             type == kString ? "strings" : "elements", count));
  const auto cut = [](uint32_t type, uint64_t count) {
    return "GGUF" + bytes_of(uint32_t{3}) + bytes_of(uint64_t{0}) + bytes_of(uint64_t{1}) +
           array_bytes("k", type, count, std::string(40, '\0'));
  };
  EXPECT_EQ(parse(cut(kU8, 40)).integers("k").size(), 40U);
  refuse(cut(kU8, 41), "key 'k': cut short: 41 elements do not fit into the 40 bytes left");
  refuse(cut(kBoolean, 1 << 27), "key 'k': cut short: 134217728 elements do not fit into the 40 bytes left");
  EXPECT_EQ(parse(cut(kF64, 5)).numbers("k").size(), 5U);
  refuse(cut(kF64, 6), "key 'k': cut short: 6 elements do not fit");
  EXPECT_EQ(parse(cut(kI16, 20)).integers("k").size(), 20U);
  refuse(cut(kI16, 21), "key 'k': cut short: 21 elements do not fit");
  EXPECT_EQ(parse(cut(kString, 5)).strings("k").size(), 5U);
  refuse(cut(kString, 6), "key 'k': cut short: 6 strings do not fit");
  for (const uint64_t length : {uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 40}) {
    refuse_key(key_bytes("k", kString, bytes_of(length)),
               fmt::format("key 'k': cut short: a string of {} bytes does not fit", length));
    refuse_key(array_bytes("k", kString, 2, string_bytes("a") + bytes_of(length)),
               fmt::format("key 'k': cut short: a string of {} bytes does not fit", length));
  }
}

TEST(GgufRefusals, Alignments) {
  for (const uint64_t alignment :
       {uint64_t{0}, uint64_t{1}, uint64_t{4}, uint64_t{24}, uint64_t{1} << 21, uint64_t{1} << 62})
    refuse_key(
        key_bytes("general.alignment", kU64, bytes_of(alignment)),
        fmt::format("key 'general.alignment': expected a power of two from 8 to 1048576, got {}", alignment));
  refuse_key(key_bytes("general.alignment", kI32, bytes_of(int32_t{-32})),
             "key 'general.alignment': expected a power of two from 8 to 1048576, got -32");
  refuse_key(key_bytes("general.alignment", kF32, bytes_of(32.F)),
             "key 'general.alignment': expected an integer, got f32");
  for (const uint32_t alignment : {8U, 1U << 20}) {
    GgufBytes bytes{
        .keys = {key_bytes("general.alignment", kU32, bytes_of(alignment))},
        .tensors = {tensor_bytes({.name = "a"}), tensor_bytes({.name = "b", .offset = alignment})},
        .data = std::string(alignment + 8, 'x'),
        .alignment = alignment};
    EXPECT_EQ(parse(bytes.text()).tensors.size(), 2U);
    bytes.tensors[1] = tensor_bytes({.name = "b", .offset = alignment / 2});
    refuse(bytes.text(), fmt::format("tensor 'b' begins at byte {} of the data, no multiple of {}",
                                     alignment / 2, alignment));
  }
}

TEST(GgufRefusals, NamesOfTensors) {
  refuse_tensors({{.name = ""}}, "tensor 1 of 1: a name has 1 to 64 bytes, got 0");
  refuse_tensors({{.name = std::string(65, 'x')}}, "tensor 1 of 1: a name has 1 to 64 bytes, got 65");
  refuse_tensors({{.name = "x\r"}}, "tensor 1 of 1: its name has other characters than printable ASCII");
  refuse_tensors({{.name = "y"}, {.name = "x"}, {.name = "y", .offset = 32}}, "tensors 'y' and 'x' overlap");
  refuse_tensors({{.name = "y"}, {.name = "y", .offset = 32}}, "tensor 'y' is there twice");
}

TEST(GgufRefusals, Shapes) {
  refuse_tensors({{.extents = {1, 1, 1, 1, 1}}}, "tensor 'x': at most 4 extents are supported, got 5");
  for (const uint64_t extent : {uint64_t{0}, (uint64_t{1} << 48) + 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    refuse_tensors({{.extents = {extent}}},
                   fmt::format("tensor 'x': an extent is 1 to 2^48, got {}", extent));
    refuse_tensors({{.extents = {2, extent}}},
                   fmt::format("tensor 'x': an extent is 1 to 2^48, got {}", extent));
  }
  // Products beyond 64 bits: 2^64 elements, 2^62 elements of 4 bytes, 2^192.
  constexpr uint64_t kMost = uint64_t{1} << 48;
  refuse_tensors({{.extents = {kMost, uint64_t{1} << 16}}}, "tensor 'x': shape: too many elements");
  refuse_tensors({{.extents = {kMost, uint64_t{1} << 14}}}, "tensor 'x': shape: too many elements");
  refuse_tensors({{.extents = {kMost, kMost, kMost, kMost}}}, "tensor 'x': shape: too many elements");
  refuse_tensors({{.extents = {kMost, 1 << 10}, .type = kTensorQ8_0}},
                 "cut short: tensor 'x' takes 306244774661193728");
  // Rows that are no whole blocks, also where the elements together would be.
  refuse_tensors({{.extents = {33}, .type = kTensorQ8_0}},
                 "tensor 'x': rows of [33] are no whole blocks of 32 q8_0 elements");
  refuse_tensors({{.extents = {16, 2}, .type = kTensorQ8_0}},
                 "tensor 'x': rows of [2, 16] are no whole blocks of 32 q8_0 elements");
  refuse_tensors({{.extents = {128}, .type = 12}},
                 "tensor 'x': rows of [128] are no whole blocks of 256 q4_k elements");
  refuse_tensors({{.extents = {}, .type = kTensorQ8_0}},
                 "tensor 'x': rows of [] are no whole blocks of 32 q8_0 elements");
}

TEST(GgufRefusals, TypesOfTensors) {
  const std::pair<uint32_t, const char*> kRejected[] = {
      {4, "q4_2"},        {5, "q4_3"},     {9, "q8_1"},   {15, "q8_k"},       {16, "iq2_xxs"},
      {17, "iq2_xs"},     {18, "iq3_xxs"}, {19, "iq1_s"}, {21, "iq3_s"},      {22, "iq2_s"},
      {24, "i8"},         {25, "i16"},     {29, "iq1_m"}, {31, "q4_0_4_4"},   {32, "q4_0_4_8"},
      {33, "q4_0_8_8"},   {34, "tq1_0"},   {35, "tq2_0"}, {36, "iq4_nl_4_4"}, {37, "iq4_nl_4_8"},
      {38, "iq4_nl_8_8"}, {40, "nvfp4"},   {41, "q1_0"},  {42, "q2_0"}};
  for (const auto& [code, name] : kRejected)
    refuse_tensors({{.extents = {256}, .type = code}},
                   fmt::format("tensor 'x': type {} is not supported", name));
  for (const uint32_t code : {43U, 1000U, ~0U})
    refuse_tensors({{.type = code}}, fmt::format("tensor 'x': type {} of tensors is unknown", code));
  // The others, by ggml's codes.
  const std::pair<uint32_t, WeightType> kRead[] = {
      {0, WeightType::f32},     {1, WeightType::f16},     {2, WeightType::q4_0},  {3, WeightType::q4_1},
      {6, WeightType::q5_0},    {7, WeightType::q5_1},    {8, WeightType::q8_0},  {10, WeightType::q2_k},
      {11, WeightType::q3_k},   {12, WeightType::q4_k},   {13, WeightType::q5_k}, {14, WeightType::q6_k},
      {20, WeightType::iq4_nl}, {23, WeightType::iq4_xs}, {30, WeightType::bf16}, {39, WeightType::mxfp4}};
  for (const auto& [code, type] : kRead) {
    const GgufBytes bytes{.tensors = {tensor_bytes({.extents = {256}, .type = code})},
                          .data = std::string(1024, 'x')};
    EXPECT_EQ(parse(bytes.text()).tensor("x")->type(), type);
  }
}

TEST(GgufRefusals, PlacesOfTensors) {
  refuse_tensors({{.offset = 1}}, "tensor 'x' begins at byte 1 of the data, no multiple of 32");
  refuse_tensors(
      {{.extents = {17}}},
      "cut short: tensor 'x' takes 68 bytes from byte 0 of the data on, the file has 64 bytes of data");
  refuse_tensors({{.extents = {9}, .offset = 32}}, "cut short: tensor 'x' takes 36 bytes from byte 32");
  refuse_tensors({{.offset = 96}}, "cut short: tensor 'x' takes 8 bytes from byte 96");
  for (const uint64_t offset : {uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{31}})
    refuse_tensors({{.offset = offset}},
                   fmt::format("cut short: tensor 'x' takes 8 bytes from byte {}", offset));
  refuse_tensors({{.name = "a"}, {.name = "b"}}, "tensors 'a' and 'b' overlap");
  refuse_tensors({{.name = "b", .offset = 32}, {.name = "a", .extents = {9}}}, "tensors 'a' and 'b' overlap");
  // The table reaches the end of the file; the data would begin after it.
  const std::string file = GgufBytes{.tensors = {tensor_bytes({})}}.text();
  refuse(file,
         "cut short: tensor 'x' takes 8 bytes from byte 0 of the data on, the file has 0 bytes of data");
  refuse(file.substr(0, file.size() - 1), "cut short: tensor 'x' takes 8 bytes");
  refuse(GgufBytes{.tensors = {tensor_bytes({})}}.text().substr(0, 24 + 30), "tensor 'x': it ends after");
}

TEST(GgufRefusals, WhatTheWriterCannotHold) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.gguf";
  const auto refuse_value = [&](const std::string& key, const GgufValue& value, const std::string& message) {
    expect_error([&] { write_gguf(path, {{key, value}}, {}); }, {path + ": key '" + key + "': " + message});
  };
  const auto refuse_tensor = [&](const std::string& name, const Weight& tensor, const std::string& message) {
    expect_error(
        [&] {
          write_gguf(path, {}, {{name, tensor}});
        },
        {path + ": tensor '" + name + "': " + message});
  };
  const GgufValue one = GgufValue::of_u32(1);
  const Weight x = Tensor::zeros({2}, DType::f32);
  refuse_value("", one, "a name is 1 to 65535 characters of printable ASCII");
  refuse_value(std::string(65536, 'k'), one, "a name is 1 to 65535 characters");
  refuse_value("\xC3\xA9", one, "a name is 1 to 65535 characters");
  expect_error([&] { write_gguf(path, {{"a", one}, {"a", one}}, {}); }, {"key 'a': given twice"});
  refuse_value("k", GgufValue::of_u32(-1), "-1 is no u32");
  refuse_value("k", GgufValue::of_u32(int64_t{1} << 32), "4294967296 is no u32");
  refuse_value("k", GgufValue::of_integers(Type::i8, {1, -129}), "-129 is no i8");
  refuse_value("k", GgufValue::of_integers(Type::u64, {-1}), "-1 is no u64");
  refuse_value("k", GgufValue::of_integers(Type::boolean, {2}), "2 is no boolean");
  refuse_value("k", GgufValue::of_f32(1e39), "1e+39 is no f32");
  refuse_value("k", GgufValue::of_integers(Type::array, {}), "arrays of arrays are not supported");
  refuse_value("k", {.type = Type::u8}, "expected one element, got 0");
  refuse_value("k", {.type = Type::string, .strings = {"a", "b"}}, "expected one element, got 2");
  refuse_value("k", {.type = Type::u8, .numbers = {1}}, "has elements of another type than u8");
  refuse_value("k", {.type = Type::f32, .integers = {1}, .numbers = {1}}, "has elements of another type");
  refuse_value("k", {.type = Type::string, .integers = {1}, .strings = {"a"}},
               "has elements of another type");
  refuse_value("general.alignment", GgufValue::of_u32(64), "expected u32 32");
  refuse_value("general.alignment", GgufValue::of_integers(Type::u32, {32}), "expected u32 32");
  refuse_tensor("", x, "a name is 1 to 63 characters of printable ASCII");
  refuse_tensor(std::string(64, 'x'), x, "a name is 1 to 63 characters");
  expect_error([&] { write_gguf(path, {}, {{"a", x}, {"a", x}}); }, {"tensor 'a': given twice"});
  refuse_tensor("x", Weight(), "is undefined");
  refuse_tensor("x", Tensor::zeros({1, 1, 1, 1, 1}, DType::f32),
                "expected at most 4 extents, none of them 0");
  refuse_tensor("x", Tensor::zeros({0, 2}, DType::f32), "expected at most 4 extents, none of them 0");
  refuse_tensor("x", Tensor::zeros({2}, DType::u8), "type u8 cannot be written");
  EXPECT_FALSE(std::filesystem::exists(path));
  expect_error([&] { write_gguf("/nonexistent/x.gguf", {}, {}); },
               {"/nonexistent/x.gguf: cannot be written"});
  expect_error([&] { read_gguf("/nonexistent/x.gguf"); }, {"/nonexistent/x.gguf: cannot be opened"});
  expect_error([&] { read_gguf(dir.path()); }, {"not a regular file"});
}

}  // namespace
}  // namespace qkv::gguf_refusals_test

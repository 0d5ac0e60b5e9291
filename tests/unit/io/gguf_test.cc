// Covers: qkv/io/container/gguf_reader.cc, qkv/io/container/gguf_writer.cc
#include "qkv/io/container/gguf.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>

#include "qkv/base/file.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/gguf_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::gguf_test {
namespace {

using testing::array_bytes;
using testing::bytes_of;
using testing::expect_error;
using testing::GgufBytes;
using testing::key_bytes;
using testing::parse;
using testing::ScratchDir;
using testing::string_bytes;
using testing::tensor_bytes;
using Type = GgufValue::Type;
using Metadata = std::vector<std::pair<std::string, GgufValue>>;
using Tensors = std::vector<std::pair<std::string, Weight>>;

Span<const std::byte> bytes_of_weight(const Weight& weight) {
  return weight.is_quantized() ? weight.quantized().blocks() : weight.dense().value_bytes();
}

void expect_equal(const Weight& got, const Weight& want) {
  EXPECT_EQ(got.shape(), want.shape());
  ASSERT_EQ(got.is_quantized(), want.is_quantized());
  if (want.is_quantized())
    EXPECT_EQ(got.quantized().type(), want.quantized().type());
  else
    EXPECT_EQ(got.dense().dtype(), want.dense().dtype());
  EXPECT_TRUE(std::ranges::equal(bytes_of_weight(got), bytes_of_weight(want)));
}

Weight filled(Weight weight, std::mt19937& rng) {
  if (weight.is_quantized()) {
    QuantizedTensor blocks = weight.quantized();
    for (std::byte& b : blocks.mutable_blocks()) b = std::byte(rng());
  } else {
    Tensor dense = weight.dense();
    for (std::byte& b : dense.mutable_value_bytes()) b = std::byte(rng());
  }
  return weight;
}

template <typename T>
int64_t random_integer(std::mt19937& rng) {
  constexpr int64_t kLeast = std::numeric_limits<T>::min();
  constexpr int64_t kMost =
      std::is_same_v<T, uint64_t> ? std::numeric_limits<int64_t>::max() : std::numeric_limits<T>::max();
  if (rng() % 4 == 0) return rng() % 2 == 0 ? kLeast : kMost;
  return std::uniform_int_distribution<int64_t>(kLeast, kMost)(rng);
}

GgufValue random_value(Type type, bool is_array, std::mt19937& rng) {
  GgufValue value{.type = type, .is_array = is_array};
  for (size_t n = is_array ? rng() % 5 : 1; n > 0; --n) {
    const double number = std::normal_distribution<double>(0, 100)(rng);
    switch (type) {
      case Type::u8:
        value.integers.push_back(random_integer<uint8_t>(rng));
        break;
      case Type::i8:
        value.integers.push_back(random_integer<int8_t>(rng));
        break;
      case Type::u16:
        value.integers.push_back(random_integer<uint16_t>(rng));
        break;
      case Type::i16:
        value.integers.push_back(random_integer<int16_t>(rng));
        break;
      case Type::u32:
        value.integers.push_back(random_integer<uint32_t>(rng));
        break;
      case Type::i32:
        value.integers.push_back(random_integer<int32_t>(rng));
        break;
      case Type::u64:
        value.integers.push_back(random_integer<uint64_t>(rng) & std::numeric_limits<int64_t>::max());
        break;
      case Type::i64:
        value.integers.push_back(random_integer<int64_t>(rng));
        break;
      case Type::boolean:
        value.integers.push_back(static_cast<int64_t>(rng() % 2));
        break;
      case Type::f32:
        value.numbers.push_back(rng() % 5 == 0 ? std::numeric_limits<double>::infinity()
                                               : static_cast<float>(number));
        break;
      case Type::f64:
        value.numbers.push_back(number);
        break;
      case Type::string: {
        std::string text(rng() % 20, '\0');
        for (char& c : text) c = static_cast<char>(rng());  // any bytes
        value.strings.push_back(text);
        break;
      }
      case Type::array:
        break;
    }
  }
  return value;
}

TEST(Gguf, RoundTripOfEveryValue) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.gguf";
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    Metadata metadata;
    for (uint32_t code = 0; code < 13; ++code)
      for (const bool is_array : {false, true})
        if (static_cast<Type>(code) != Type::array)
          metadata.emplace_back(fmt::format("key.{}.{}", code, is_array),
                                random_value(static_cast<Type>(code), is_array, rng));
    std::shuffle(metadata.begin(), metadata.end(), rng);
    write_gguf(path, metadata, {});
    const Gguf file = read_gguf(path);
    EXPECT_EQ(file.path, path);
    EXPECT_TRUE(file.tensors.empty());
    ASSERT_EQ(file.metadata.size(), metadata.size());
    for (size_t i = 0; i < metadata.size(); ++i) {
      const auto& [key, want] = metadata[i];
      const GgufValue& got = file.metadata[i].second;
      SCOPED_TRACE(key);
      EXPECT_EQ(file.metadata[i].first, key);
      EXPECT_EQ(got.type, want.type);
      EXPECT_EQ(got.is_array, want.is_array);
      EXPECT_EQ(got.integers, want.integers);
      EXPECT_EQ(got.numbers, want.numbers);
      EXPECT_EQ(got.strings, want.strings);
      EXPECT_EQ(file.find(key), &got);
    }
  }
}

TEST(Gguf, RoundTripOfEveryTensor) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.gguf";
  std::mt19937 rng(1);
  Tensors tensors;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64})
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 5}, Shape{1, 2, 3, 1}})
      tensors.emplace_back(fmt::format("{}{}", name_of(dtype), shape),
                           filled(Tensor::empty(shape, dtype), rng));
  for (int i = 0; i < kWeightTypes; ++i) {
    const auto type = static_cast<WeightType>(i);
    const int64_t n = layout_of(type).elements;
    if (!is_quantized(type)) continue;
    for (const Shape& shape : {Shape{n}, Shape{3, 2 * n}, Shape{2, 3, n}, Shape{2, 1, 3, n}})
      tensors.emplace_back(fmt::format("{}{}", name_of(type), shape),
                           filled(QuantizedTensor::empty(shape, type), rng));
  }
  std::shuffle(tensors.begin(), tensors.end(), rng);
  write_gguf(path, {{"general.alignment", GgufValue::of_u32(32)}}, tensors);
  EXPECT_EQ(std::filesystem::file_size(path) % 32, 0U);
  Gguf file = read_gguf(path);
  std::filesystem::remove(path);  // the mapping stays
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE(tensors[i].first);
    EXPECT_EQ(file.tensors[i].first, tensors[i].first);
    expect_equal(file.tensors[i].second, tensors[i].second);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes_of_weight(file.tensors[i].second).data()) % 32, 0U);
  }
  const Weight last = file.tensors.back().second;
  file = Gguf();
  expect_equal(last, tensors.back().second);  // a tensor keeps its file mapped
}

TEST(Gguf, WritesTheBytesOfTheFormat) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.gguf";
  const Tensor x = Tensor::of({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const Tensor y = Tensor::of({1}, std::vector<int32_t>{7});
  write_gguf(path,
             {{"a", GgufValue::of("llama")},
              {"b", GgufValue::of(true)},
              {"c", GgufValue::of_u32(70000)},
              {"d", GgufValue::of_f32(0.5)},
              {"e", GgufValue::of_strings({"x", ""})},
              {"f", GgufValue::of_integers(Type::i16, {-2, 3})},
              {"g", GgufValue::of_f32s({1.5})}},
             {{"x", x}, {"y", y}});
  const GgufBytes want{
      .keys = {key_bytes("a", testing::kString, string_bytes("llama")),
               key_bytes("b", testing::kBoolean, "\x01"),
               key_bytes("c", testing::kU32, bytes_of(uint32_t{70000})),
               key_bytes("d", testing::kF32, bytes_of(0.5F)),
               array_bytes("e", testing::kString, 2, string_bytes("x") + string_bytes("")),
               array_bytes("f", testing::kI16, 2, bytes_of(int16_t{-2}) + bytes_of(int16_t{3})),
               array_bytes("g", testing::kF32, 1, bytes_of(1.5F))},
      .tensors = {tensor_bytes({.name = "x", .extents = {3, 2}}),
                  tensor_bytes({.name = "y", .extents = {1}, .type = testing::kTensorI32, .offset = 32})},
      .data = std::string(reinterpret_cast<const char*>(x.raw()), 24) + std::string(8, '\0') +
              bytes_of(int32_t{7}) + std::string(28, '\0')};
  EXPECT_EQ(read_file(path), want.text());
}

TEST(Gguf, ReadsBothVersionsAndAnyOrderOfBytes) {
  GgufBytes bytes{.keys = {key_bytes("general.alignment", testing::kU64, bytes_of(uint64_t{64})),
                           key_bytes("n", testing::kI8, "\xFE")},
                  .tensors = {tensor_bytes({.name = "a", .extents = {3, 2}, .offset = 128}),
                              tensor_bytes({.name = "b", .extents = {32, 1}, .type = testing::kTensorQ8_0})},
                  .data = std::string(34, 'q') + std::string(94, '-') + std::string(24, 'f'),
                  .alignment = 64};
  for (const uint32_t version : {2, 3}) {
    bytes.version = version;
    const Gguf file = parse(bytes.text());
    EXPECT_EQ(file.integer("n"), -2);
    ASSERT_NE(file.tensor("a"), nullptr);
    EXPECT_EQ(file.tensor("a")->shape(), (Shape{2, 3}));
    EXPECT_EQ(file.tensor("a")->type(), WeightType::f32);
    for (const std::byte b : bytes_of_weight(*file.tensor("a"))) EXPECT_EQ(b, std::byte{'f'});
    ASSERT_NE(file.tensor("b"), nullptr);
    EXPECT_EQ(file.tensor("b")->type(), WeightType::q8_0);
    EXPECT_EQ(file.tensor("b")->bytes(), 34U);
    for (const std::byte b : bytes_of_weight(*file.tensor("b"))) EXPECT_EQ(b, std::byte{'q'});
    EXPECT_EQ(file.tensor("c"), nullptr);
  }
}

TEST(Gguf, CopiesElementsThatAreNotAligned) {
  const std::string text =
      GgufBytes{.tensors = {tensor_bytes({}),
                            tensor_bytes(
                                {.name = "b", .extents = {32}, .type = testing::kTensorQ8_0, .offset = 32})},
                .data = bytes_of(1.5F) + bytes_of(-2.F) + std::string(24, '\0') + std::string(34, 'q')}
          .text();
  for (const size_t shift : {0, 1, 4}) {
    const auto memory = std::make_shared<std::vector<std::byte>>(text.size() + shift);
    std::memcpy(memory->data() + shift, text.data(), text.size());
    const Gguf file = parse_gguf(memory->data() + shift, text.size(), memory, "f");
    const Tensor& x = file.tensor("x")->dense();
    EXPECT_EQ(x.borrowed(), shift != 1);
    EXPECT_EQ(x.values<float>()[0], 1.5F);
    EXPECT_EQ(x.values<float>()[1], -2.F);
    EXPECT_TRUE(file.tensor("b")->quantized().borrowed());
  }
}

TEST(Gguf, AccessorsTakeTheirKindOnly) {
  Gguf file{.path = "m.gguf",
            .metadata = {{"text", GgufValue::of("abc")},
                         {"flag", GgufValue::of(false)},
                         {"count", {.type = Type::i64, .integers = {-5}}},
                         {"factor", GgufValue::of_f32(0.25)},
                         {"texts", GgufValue::of_strings({"a", "b"})},
                         {"counts", GgufValue::of_integers(Type::u8, {1, 2})},
                         {"flags", GgufValue::of_integers(Type::boolean, {1, 0})},
                         {"factors", {.type = Type::f64, .is_array = true, .numbers = {0.5}}}}};
  for (const bool indexed : {false, true}) {
    if (indexed) file.index();
    EXPECT_EQ(file.string("text"), "abc");
    EXPECT_FALSE(file.boolean("flag"));
    EXPECT_EQ(file.integer("count"), -5);
    EXPECT_EQ(file.number("count"), -5);
    EXPECT_EQ(file.number("factor"), 0.25);
    EXPECT_EQ(file.strings("texts"), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(file.integers("counts"), (std::vector<int64_t>{1, 2}));
    EXPECT_EQ(file.integers("flags"), (std::vector<int64_t>{1, 0}));
    EXPECT_EQ(file.numbers("counts"), (std::vector<double>{1, 2}));
    EXPECT_EQ(file.numbers("factors"), (std::vector<double>{0.5}));
    EXPECT_TRUE(file.has("text"));
    EXPECT_FALSE(file.has("tex"));
    EXPECT_FALSE(file.has("text2"));
  }
  expect_error([&] { file.string("none"); }, {"m.gguf: key 'none' is missing"});
  expect_error([&] { file.string("texts"); }, {"key 'texts': expected a string, got an array of string"});
  expect_error([&] { file.integer("flag"); }, {"key 'flag': expected an integer, got boolean"});
  expect_error([&] { file.integer("factor"); }, {"key 'factor': expected an integer, got f32"});
  expect_error([&] { file.integer("counts"); }, {"expected an integer, got an array of u8"});
  expect_error([&] { file.number("text"); }, {"expected a number, got string"});
  expect_error([&] { file.number("factors"); }, {"expected a number, got an array of f64"});
  expect_error([&] { file.boolean("count"); }, {"expected a boolean, got i64"});
  expect_error([&] { file.strings("text"); }, {"expected an array of strings, got string"});
  expect_error([&] { file.integers("factors"); }, {"expected an array of integers, got an array of f64"});
  expect_error([&] { file.integers("count"); }, {"expected an array of integers, got i64"});
  expect_error([&] { file.numbers("factor"); }, {"expected an array of numbers, got f32"});
  expect_error([&] { file.numbers("flags"); }, {"expected an array of numbers, got an array of boolean"});
  expect_error([&] { file.numbers("texts"); }, {"expected an array of numbers, got an array of string"});
}

TEST(Gguf, EntriesAddedLaterAreFoundWithoutTheIndex) {
  Gguf file = parse(GgufBytes{.keys = {key_bytes("a", testing::kU8, "\x07")},
                              .tensors = {tensor_bytes({})},
                              .data = std::string(8, '\0')}
                        .text());
  const Gguf copy = file;
  file.metadata.emplace_back("b", GgufValue::of_u32(8));
  file.tensors.emplace(file.tensors.begin(), "y", Tensor::zeros({1}, DType::f32));
  EXPECT_EQ(file.integer("a"), 7);
  EXPECT_EQ(file.integer("b"), 8);
  EXPECT_EQ(file.tensor("x"), &file.tensors[1].second);
  EXPECT_EQ(file.tensor("y"), &file.tensors[0].second);
  EXPECT_EQ(copy.tensor("x"), &copy.tensors[0].second);
  file.metadata.emplace_back("a", GgufValue::of_u32(9));
  expect_error([&] { file.index(); }, {"key 'a' is there twice"});
}

TEST(Gguf, ManyStringsAndTensors) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/x.gguf";
  constexpr int kStrings = 256'000, kTensors = 4000;
  std::vector<std::string> vocabulary;
  for (int i = 0; i < kStrings; ++i) vocabulary.push_back(fmt::format("token {}", i));
  Tensors tensors;
  for (int i = 0; i < kTensors; ++i)
    tensors.emplace_back(fmt::format("blk.{}.weight", i),
                         Tensor::of({1}, std::vector<float>{static_cast<float>(i)}));
  write_gguf(path, {{"tokens", GgufValue::of_strings(vocabulary)}}, tensors);
  const Gguf file = read_gguf(path);
  EXPECT_EQ(file.strings("tokens"), vocabulary);
  for (int i = 0; i < kTensors; ++i)
    EXPECT_EQ(file.tensor(fmt::format("blk.{}.weight", i))->dense().item(), static_cast<float>(i));
}

// The published files lie outside the repository.
TEST(GgufReference, FilesOfOthersAreRead) {
  const char* reference = std::getenv("QKV_REFERENCE");
  if (reference == nullptr) GTEST_SKIP() << "QKV_REFERENCE does not name a folder beside weights/ and data/";
  const std::string root = std::string(reference) + "/..";
  const std::string stories = root + "/weights/stories260K/stories260K";
  const Gguf model = read_gguf(stories + "-f32.gguf");
  EXPECT_EQ(model.string("general.architecture"), "llama");
  ASSERT_NE(model.tensor("token_embd.weight"), nullptr);
  const Weight& embedding = *model.tensor("token_embd.weight");
  EXPECT_EQ(embedding.shape(), (Shape{512, 64}));
  // llama2.c's file of the same model has 28 bytes of header, and then this table.
  const std::string original = read_file(stories + ".bin");
  const Span<const std::byte> bytes = embedding.dense().value_bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
            original.substr(28, bytes.size()));
  const Gguf gpt2 = read_gguf(root + "/data/tokenizers/llama_cpp_vocab/ggml-vocab-gpt-2.gguf");
  EXPECT_EQ(gpt2.string("tokenizer.ggml.model"), "gpt2");
  ASSERT_EQ(gpt2.strings("tokenizer.ggml.tokens").size(), 50257U);
  EXPECT_EQ(gpt2.strings("tokenizer.ggml.tokens")[50256], "<|endoftext|>");
  EXPECT_EQ(gpt2.integers("tokenizer.ggml.token_type").size(), 50257U);
  EXPECT_EQ(gpt2.integer("tokenizer.ggml.bos_token_id"), 50256);
  const Gguf bert = read_gguf(root + "/data/tokenizers/llama_cpp_vocab/ggml-vocab-bert-bge.gguf");
  EXPECT_EQ(bert.string("general.architecture"), "bert");
  EXPECT_EQ(bert.strings("tokenizer.ggml.tokens").at(101), "[CLS]");
}

}  // namespace
}  // namespace qkv::gguf_test

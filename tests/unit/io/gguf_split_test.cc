// Models in several files.
// Covers: qkv/io/container/gguf_reader.cc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "qkv/io/container/gguf.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::gguf_split_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;
using Type = GgufValue::Type;

// A part as llama.cpp's gguf-split writes it: the first alone has the model's keys.
struct Part {
  int64_t number = 0, parts = 3, tensors = 4;
  std::vector<std::string> names = {};
};

std::string part_path(const ScratchDir& dir, int64_t number, int64_t parts = 3) {
  return fmt::format("{}/m-{:05}-of-{:05}.gguf", dir.path(), number + 1, parts);
}

Tensor tensor_of(const std::string& name) {
  return Tensor::of({1}, std::vector<float>{static_cast<float>(name.back())});
}

void write_part(const std::string& path, const Part& part) {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  if (part.number == 0) metadata.emplace_back("general.architecture", GgufValue::of("llama"));
  metadata.emplace_back("split.no", GgufValue{.type = Type::u16, .integers = {part.number}});
  metadata.emplace_back("split.count", GgufValue{.type = Type::u16, .integers = {part.parts}});
  metadata.emplace_back("split.tensors.count", GgufValue{.type = Type::i32, .integers = {part.tensors}});
  if (part.number == 0) metadata.emplace_back("last", GgufValue::of_u32(5));
  std::vector<std::pair<std::string, Weight>> tensors;
  for (const std::string& name : part.names) tensors.emplace_back(name, tensor_of(name));
  write_gguf(path, metadata, tensors);
}

// Three parts, the first without tensors.
void write_parts(const ScratchDir& dir) {
  write_part(part_path(dir, 0), {.number = 0});
  write_part(part_path(dir, 1), {.number = 1, .names = {"a", "b", "c"}});
  write_part(part_path(dir, 2), {.number = 2, .names = {"d"}});
}

TEST(GgufSplit, AnyPartGivesTheWholeModel) {
  const ScratchDir dir;
  write_parts(dir);
  for (int64_t given = 0; given < 3; ++given) {
    SCOPED_TRACE(given);
    const Gguf file = read_gguf(part_path(dir, given));
    EXPECT_EQ(file.path, part_path(dir, 0));
    ASSERT_EQ(file.metadata.size(), 2U);
    EXPECT_EQ(file.string("general.architecture"), "llama");
    EXPECT_EQ(file.integer("last"), 5);
    EXPECT_FALSE(file.has("split.count"));
    ASSERT_EQ(file.tensors.size(), 4U);
    for (size_t i = 0; i < 4; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      EXPECT_EQ(file.tensors[i].first, name);
      EXPECT_EQ(file.tensor(name), &file.tensors[i].second);
      EXPECT_EQ(file.tensor(name)->dense().item(), static_cast<float>(name[0]));
    }
  }
}

TEST(GgufSplit, OneFileIsNoSplitModelWhateverItsName) {
  const ScratchDir dir;
  for (const int64_t parts : {0, 1}) {
    const std::string path = part_path(dir, 1, 2);
    write_part(path, {.number = 0, .parts = parts, .tensors = 1, .names = {"a"}});
    const Gguf file = read_gguf(path);
    EXPECT_EQ(file.tensors.size(), 1U);
    EXPECT_EQ(file.integer("split.count"), parts);
  }
}

TEST(GgufSplit, MissingAndWrongPartsAreRejected) {
  const ScratchDir dir;
  const auto refuse = [&](int64_t given, std::initializer_list<std::string> parts) {
    expect_error([&] { read_gguf(part_path(dir, given)); }, parts);
    write_parts(dir);
  };
  write_parts(dir);
  std::filesystem::remove(part_path(dir, 1));
  refuse(2, {part_path(dir, 1) + ": part 2 of 3 is missing"});
  std::filesystem::copy_file(part_path(dir, 1), dir.path() + "/other.gguf");
  expect_error([&] { read_gguf(dir.path() + "/other.gguf"); },
               {"other.gguf: is part 2 of 3: its name must end in '-00002-of-00003.gguf'"});
  std::filesystem::copy_file(part_path(dir, 1), part_path(dir, 2),
                             std::filesystem::copy_options::overwrite_existing);
  refuse(0, {part_path(dir, 2) + ": expected part 3 of 3, but split.no and split.count say part 2 of 3"});
  write_part(part_path(dir, 2), {.number = 2, .parts = 4, .names = {"d"}});
  refuse(0, {part_path(dir, 2) + ": expected part 3 of 3, but split.no and split.count say part 3 of 4"});
  write_part(part_path(dir, 2), {.number = 2, .tensors = 5, .names = {"d"}});
  refuse(0, {part_path(dir, 2) + ": split.tensors.count is 5, but 4 in another part"});
  write_part(part_path(dir, 2), {.number = 2});
  refuse(1, {part_path(dir, 0) + ": split.tensors.count is 4, but the parts hold 3 tensors"});
  write_part(part_path(dir, 2), {.number = 2, .names = {"a"}});
  refuse(1, {part_path(dir, 0) + ": tensor 'a' is there twice"});
  for (const int64_t number : {3, 65535}) {
    write_part(part_path(dir, 2), {.number = number, .names = {"d"}});
    refuse(2, {fmt::format("split.no and split.count say part {} of 3", number + 1)});
  }
  write_gguf(part_path(dir, 0), {{"split.count", GgufValue::of_u32(3)}}, {});
  refuse(0, {part_path(dir, 0) + ": key 'split.no' is missing"});
  write_gguf(part_path(dir, 0),
             {{"split.count", GgufValue::of_u32(int64_t{1} << 31)}, {"split.no", GgufValue::of_u32(0)}}, {});
  refuse(0, {"split.no and split.count say part 1 of 2147483648"});
  write_gguf(part_path(dir, 0), {{"split.count", GgufValue::of("3")}}, {});
  refuse(0, {"key 'split.count': expected an integer, got string"});
}

}  // namespace
}  // namespace qkv::gguf_split_test

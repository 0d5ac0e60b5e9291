// Files that PyTorch 1.13.1 wrote (tests/golden/pytorch), and mutations of them.
// Covers: qkv/io/container/pickle.cc
#include "qkv/io/container/pytorch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "qkv/base/file.h"
#include "qkv/io/container/safetensors.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/mutation.h"
#include "tests/unit/scratch_dir.h"
#define LLVMFuzzerTestOneInput fuzz_pytorch
#include "tests/fuzz/pytorch_fuzz.cc"
#include "tests/source_dir.h"
#undef LLVMFuzzerTestOneInput

namespace qkv::pytorch_test {
namespace {

using testing::expect_error;

std::string path_of(const std::string& name) {
  return fmt::format("{}/tests/golden/pytorch/{}", testing::source_dir(), name);
}

void run(const std::string& file) {
  fuzz_pytorch(reinterpret_cast<const uint8_t*>(file.data()), file.size());
}

class PyTorchFiles : public ::testing::TestWithParam<const char*> {};

// Shared, strided, transposed and empty tensors, parameters, all types, in a dictionary among plain values.
TEST_P(PyTorchFiles, AreRead) {
  const TensorFile want = read_safetensors(path_of("expected.safetensors")),
                   got = read_pytorch(path_of(GetParam()));
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (const auto& [name, tensor] : want.tensors) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(got.tensors.contains(name));
    const Tensor& found = got.tensors.at(name);
    EXPECT_EQ(found.shape(), tensor.shape());
    EXPECT_EQ(found.dtype(), tensor.dtype());
    EXPECT_TRUE(std::ranges::equal(found.value_bytes(), tensor.value_bytes()));
  }
}

TEST_P(PyTorchFiles, MutatedAreReadOrRefused) {
  std::mt19937 rng(2026);
  const std::string file = read_file(path_of(GetParam()));
  for (int i = 0; i < 4000; ++i) {
    std::string changed = file;
    for (int n = std::uniform_int_distribution<int>(1, 4)(rng); n > 0; --n) {
      const size_t at = std::uniform_int_distribution<size_t>(0, changed.size() - 1)(rng);
      changed[at] = static_cast<char>(rng());
    }
    run(changed);
  }
}

TEST_P(PyTorchFiles, CutAreRefused) {
  const std::string file = read_file(path_of(GetParam()));
  for (size_t n = 0; n < file.size(); ++n) run(file.substr(0, n));
}

INSTANTIATE_TEST_SUITE_P(Forms, PyTorchFiles, ::testing::Values("zip.bin", "older.bin"));

TEST(PyTorch, OtherClassesAreRejected) {
  expect_error([] { read_pytorch(path_of("class.bin")); }, {"class.bin", "collections.Counter"});
  expect_error([] { read_pytorch(path_of("module.bin")); }, {"module.bin", "dictionary of tensors"});
}

TEST(PyTorch, OtherFilesAreRejected) {
  const testing::ScratchDir dir;
  const auto refuse = [&](const std::string& bytes, std::initializer_list<std::string> parts) {
    dir.write("x.bin", bytes);
    expect_error([&] { read_pytorch(dir.path() + "/x.bin"); }, parts);
  };
  refuse("", {"x.bin"});
  refuse("PK", {"x.bin", "zip archive is damaged"});
  refuse(std::string(100, 'P'), {"x.bin", "not one of plain data"});
  refuse("cos\nsystem\n(S'true'\ntR.", {"x.bin", "not one of plain data"});
  refuse(
      "\x80\x02"
      "cos\nsystem\n)R.",
      {"x.bin", "not a file of torch.save()"});
}

// A pickle with `body` between the protocol and the end.
std::string pickle(const std::string& body) {
  return "\x80\x02" + body + ".";
}

// A few bytes must not become hours or gigabytes: dictionaries that are reached many times, and names.
TEST(PyTorch, SmallFilesStaySmall) {
  const testing::ScratchDir dir;
  const std::string magic(pickle(std::string("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")));
  const std::string head = magic + pickle("M\xe9\x03") + pickle("}");
  const auto refuse = [&](const std::string& table, std::initializer_list<std::string> parts) {
    dir.write("x.bin", head + pickle(table) + pickle("]"));
    expect_error([&] { read_pytorch(dir.path() + "/x.bin"); }, parts);
  };
  std::string nested = "}q\x01";  // {0: {0: ..., 1: ...}, 1: the same}, and so on
  for (int depth = 0; depth < 12; ++depth) {
    nested += "0}(";
    for (int i = 0; i < 100; ++i) nested += std::string("K") + static_cast<char>(i) + "h\x01";
    nested += "uq\x01";
  }
  refuse(nested, {"x.bin", "entries"});
  const std::string name(5000, 'n');
  const std::string length("\x88\x13\x00\x00", 4);
  refuse("X" + length + name + "X" + length + name + "\x93", {"x.bin", "name of a class"});
  refuse("}X" + length + name + "Ns", {"x.bin", "plain characters"});
}

}  // namespace
}  // namespace qkv::pytorch_test

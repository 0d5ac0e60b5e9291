// Runs the fuzz target over mutations of a valid file, for builds without a fuzzer.
#include <gtest/gtest.h>

#include <random>
#include <string>

#define LLVMFuzzerTestOneInput fuzz_gguf
#include "tests/fuzz/gguf_fuzz.cc"
#include "tests/unit/io/gguf_testing.h"
#include "tests/unit/mutation.h"
#undef LLVMFuzzerTestOneInput

namespace qkv::gguf_fuzz_test {
namespace {

using namespace testing;  // NOLINT: the parts of a file

void run(const std::string& file) {
  fuzz_gguf(reinterpret_cast<const uint8_t*>(file.data()), file.size());
}

// Every kind of value, and tensors of three kinds.
std::string valid_file() {
  return GgufBytes{
      .keys = {key_bytes("general.architecture", kString, string_bytes("llama")),
               key_bytes("general.alignment", kU32, bytes_of(uint32_t{32})), key_bytes("a", kU8, "\x01"),
               key_bytes("b", kBoolean, "\x01"), key_bytes("c", kI64, bytes_of(int64_t{-3})),
               key_bytes("d", kF32, bytes_of(1.5F)), key_bytes("e", kF64, bytes_of(2.5)),
               array_bytes("tokens", kString, 3, string_bytes("a") + string_bytes("") + string_bytes("bc")),
               array_bytes("types", kI32, 2, bytes_of(int32_t{1}) + bytes_of(int32_t{2})),
               array_bytes("scores", kF32, 1, bytes_of(0.5F)),
               array_bytes("flags", kBoolean, 2, std::string("\0\1", 2)), array_bytes("none", kU64, 0, "")},
      .tensors = {tensor_bytes({.name = "f", .extents = {3, 2}}),
                  tensor_bytes({.name = "q", .extents = {32, 2}, .type = kTensorQ8_0, .offset = 32}),
                  tensor_bytes({.name = "h", .extents = {5}, .type = kTensorBf16, .offset = 128})},
      .data = std::string(138, 'x')}
      .text();
}

TEST(GgufFuzz, TheFileIsValid) {
  const Gguf file = parse(valid_file());
  EXPECT_EQ(file.metadata.size(), 12U);
  EXPECT_EQ(file.tensors.size(), 3U);
  EXPECT_EQ(file.strings("tokens")[2], "bc");
}

TEST(GgufFuzz, FilesWithOtherBytesAreReadOrRefused) {
  std::mt19937 rng(2026);
  const std::string file = valid_file();
  for (int i = 0; i < 8000; ++i) {
    std::string changed = file;
    for (size_t n = 1 + rng() % 4; n > 0; --n) {
      const size_t at = rng() % changed.size();
      // Half of the changes are small: counts, types and lengths stay plausible.
      changed[at] = static_cast<char>(rng() % 2 == 0 ? rng() : changed[at] + rng() % 5 - 2);
    }
    run(changed);
  }
}

TEST(GgufFuzz, MutatedFilesAreReadOrRefused) {
  static constexpr const char* kPieces[] = {
      "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "\x7F\xFF\xFF\xFF", "GGUF", "\x09", "\x08", "\x80", "tokens"};
  std::mt19937 rng(2027);
  const std::string file = valid_file();
  const auto replace_byte = [](std::string& s, size_t at, const char* piece) {
    s.replace(std::min(at, s.size()), 1, piece);
  };
  for (int i = 0; i < 4000; ++i) run(mutate(file, rng, kPieces, replace_byte));
}

TEST(GgufFuzz, EachNumberMayBeAnyOther) {
  const std::string file = valid_file();
  for (const uint64_t number : {uint64_t{0}, uint64_t{9}, uint64_t{1} << 31, uint64_t{1} << 32,
                                uint64_t{1} << 60, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{31}})
    for (size_t at = 0; at + 8 <= file.size(); ++at) {
      std::string changed = file;
      run(changed.replace(at, 8, bytes_of(number)));
      changed = file;
      run(changed.replace(at, 4, bytes_of(static_cast<uint32_t>(number))));
    }
}

TEST(GgufFuzz, CutFilesAreReadOrRefused) {
  const std::string file = valid_file();
  for (size_t n = 0; n < file.size(); ++n) run(file.substr(0, n));
}

}  // namespace
}  // namespace qkv::gguf_fuzz_test

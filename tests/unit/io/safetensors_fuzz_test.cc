// Runs the fuzz target over mutations of a valid file, for builds without a fuzzer.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "tests/fuzz/safetensors_fuzz.cc"
#include "tests/unit/mutation.h"
#undef LLVMFuzzerTestOneInput

namespace qkv::safetensors_fuzz_test {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string s(8, '\0');
  std::memcpy(s.data(), &length, 8);
  return s + header + data;
}

void run(const std::string& file) {
  fuzz_safetensors(reinterpret_cast<const uint8_t*>(file.data()), file.size());
}

const std::string kHeader =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("b":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]},"c":{"dtype":"U8","shape":[],"data_offsets":[34,35]},)"
    R"("d":{"dtype":"I64","shape":[1,1,1],"data_offsets":[35,43]},"e":{"dtype":"F16","shape":[0,4],"data_offsets":[43,43]}})";

std::string mutate(std::string s, std::mt19937& rng) {
  static constexpr const char* kPieces[] = {"-1",
                                            "0",
                                            "4294967296",
                                            "9223372036854775807",
                                            "18446744073709551615",
                                            "1e9",
                                            "null",
                                            "[]",
                                            "{}",
                                            "\"F64\"",
                                            "\"X\"",
                                            "[[[[",
                                            "\xFF",
                                            "\"a\"",
                                            "281474976710655,281474976710655"};
  return qkv::testing::mutate(
      std::move(s), rng, kPieces, [](std::string& text, size_t at, const char* piece) {
        const size_t number = text.find_first_of("0123456789", at);  // a whole number by another
        if (number == text.npos) return;
        const size_t end = text.find_first_not_of("0123456789", number);
        text.replace(number, std::min(end, text.size()) - number, piece);
      });
}

TEST(SafetensorsFuzz, TheFileIsValid) {
  const std::string file = file_of(kHeader, std::string(43, 'x'));
  const auto parsed =
      parse_safetensors(reinterpret_cast<const std::byte*>(file.data()), file.size(), nullptr, "f");
  EXPECT_EQ(parsed.tensors.size(), 5U);
  EXPECT_EQ(parsed.metadata.at("format"), "pt");
}

TEST(SafetensorsFuzz, MutatedHeadersAreReadOrRefused) {
  std::mt19937 rng(2024);
  // The length fits the changed header: its contents are looked at.
  for (int i = 0; i < 3000; ++i) run(file_of(mutate(kHeader, rng), std::string(43, 'x')));
}

TEST(SafetensorsFuzz, MutatedFilesAreReadOrRefused) {
  std::mt19937 rng(2025);
  const std::string file = file_of(kHeader, std::string(43, 'x'));
  for (int i = 0; i < 1000; ++i) run(mutate(file, rng));
}

TEST(SafetensorsFuzz, CutFilesAreRefused) {
  const std::string file = file_of(kHeader, std::string(43, 'x'));
  for (size_t n = 0; n < file.size(); ++n) run(file.substr(0, n));
}

}  // namespace
}  // namespace qkv::safetensors_fuzz_test

// Runs the fuzz target over mutations of a valid file, for builds without a fuzzer.
#include <gtest/gtest.h>

#include <random>
#include <string>

#define LLVMFuzzerTestOneInput fuzz_tiktoken
#include "tests/fuzz/tiktoken_fuzz.cc"
#include "tests/unit/mutation.h"
#undef LLVMFuzzerTestOneInput

namespace qkv::text::tiktoken_fuzz_test {
namespace {

TEST(TiktokenFuzz, MutatedFilesAreReadOrRefused) {
  const std::string file = "YQ== 0\nYg== 1\nYWI= 2\nYmE= 3\nYmFi 4\nIA== 5\nIGE= 6\nYWE= 7\nMQ== 8\n";
  static constexpr const char* kPieces[] = {" ",    "\n",   "=", "99999999", "-1",
                                            "YQ==", "\r\n", "0", "10000001"};
  std::mt19937 rng(2026);
  for (int i = 0; i < 4000; ++i) {
    const std::string mutated = qkv::testing::mutate(
        file, rng, kPieces, [](std::string& text, size_t at, const char* piece) { text.insert(at, piece); });
    fuzz_tiktoken(reinterpret_cast<const uint8_t*>(mutated.data()), mutated.size());
  }
}

}  // namespace
}  // namespace qkv::text::tiktoken_fuzz_test

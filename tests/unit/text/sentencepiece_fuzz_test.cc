// Runs the fuzz target over mutations of valid files, for builds without a fuzzer.
#include <gtest/gtest.h>

#include <random>
#include <string>

#define LLVMFuzzerTestOneInput fuzz_sentencepiece
#include "tests/fuzz/sentencepiece_fuzz.cc"
#include "tests/unit/mutation.h"
#include "tests/unit/text/sentencepiece_testing.h"
#undef LLVMFuzzerTestOneInput

namespace qkv::text::sentencepiece_fuzz_test {
namespace {

void run(const std::string& model) {
  fuzz_sentencepiece(reinterpret_cast<const uint8_t*>(model.data()), model.size());
}

std::string model_of(uint64_t type) {
  namespace t = qkv::testing;
  const std::string pieces = t::piece_field("a", -1) + t::piece_field("b", -1) + t::piece_field("ab", -1) +
                             t::piece_field("\xE2\x96\x81", -2) +
                             t::piece_field(
                                 "\xE2\x96\x81"
                                 "a",
                                 -2) +
                             t::piece_field("b ", 0, t::kUserDefined) + t::piece_field("aba", 0, t::kUnused) +
                             t::piece_field("1,", -1) + t::piece_field("[CLS]", 0, t::kControl);
  return t::sentencepiece_model(type, pieces, t::bytes_field(2, t::charsmap_of_one('X', "ab")));
}

TEST(SentencePieceFuzz, MutatedFilesAreReadOrRefused) {
  static constexpr const char* kPieces[] = {
      "\x0A",     "\xFF\xFF\xFF\xFF\x0F", "\x12\x03", "\x1A\x02\x18\x01", "\x80",
      "\x08\x05", "\xE2\x96\x81",         "\xC3"};
  std::mt19937 rng(2025);
  for (const uint64_t type : {1, 2, 3, 4}) {
    const std::string model = model_of(type);
    for (int i = 0; i < 600; ++i) {
      run(qkv::testing::mutate(model, rng, kPieces, [](std::string& s, size_t at, const char* piece) {
        s.replace(std::min(at, s.size()), 1, piece);
      }));
    }
  }
}

TEST(SentencePieceFuzz, DamagedMapsAreReadOrRefused) {
  std::mt19937 rng(7);
  std::string model = model_of(1);
  const size_t map = model.find(qkv::testing::charsmap_of_one('X', "ab").substr(0, 4));
  ASSERT_NE(map, model.npos);
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = model;
    for (int n = 0; n < 20; ++n) damaged[map + rng() % 2052] = static_cast<char>(rng());
    run(damaged);
  }
}

TEST(SentencePieceFuzz, CutFilesAreReadOrRefused) {
  const std::string model = model_of(2);
  for (size_t n = 0; n < model.size(); n += 5) run(model.substr(0, n));
}

}  // namespace
}  // namespace qkv::text::sentencepiece_fuzz_test

// Runs the fuzz target over mutations of valid files, for builds without a fuzzer.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family.h"

#define LLVMFuzzerTestOneInput fuzz_model_json
#include "tests/fuzz/model_json_fuzz.cc"
#include "tests/unit/mutation.h"
#undef LLVMFuzzerTestOneInput

namespace qkv::model_json_fuzz_test {
namespace {

void run(const std::string& document) {
  fuzz_model_json(reinterpret_cast<const uint8_t*>(document.data()), document.size());
}

// An index, and config.json of several families.
std::vector<std::string> documents() {
  ModelSpec native = gpt2_spec(40, 16, 12, 2, 3);
  native.normalization = Normalization::scale;
  ModelSpec llama = gpt2_spec(40, 16, 12, 2, 3);
  llama.positions = Positions::rotary;
  llama.attention.rotary.width = 4;
  llama.attention.bias = llama.attention.out_bias = llama.feed_forward_bias = false;
  llama.normalization = Normalization::rms;
  llama.activation = Activation::silu;
  llama.gated = true;
  llama.tied = false;
  std::vector<std::string> out = {
      R"({"metadata": {"total_size": 12}, "weight_map": {"a.weight": "model-00001-of-00002.safetensors",
          "b.weight": "model-00002-of-00002.safetensors"}})"};
  for (const ModelSpec& s : {gpt2_spec(40, 16, 12, 2, 3), bert_spec(40, 16, 12, 2, 3), native, llama})
    out.push_back(config_of(family_for(s), s).dump(1));
  return out;
}

std::string mutate(std::string s, std::mt19937& rng) {
  static constexpr const char* kPieces[] = {
      "-1", "0",        "99999999999", "9223372036854775807",  "1e9",  "null", "\"\"",   "[]",
      "{}", "\"gpt2\"", "\"llama\"",   "\"../x.safetensors\"", "true", "0.5",  "1e-300", "[1, 2]"};
  return testing::mutate(std::move(s), rng, kPieces, [](std::string& text, size_t at, const char* piece) {
    const size_t colon = text.find(": ", at);
    if (colon == text.npos) return;
    const size_t end = text.find_first_of(",}]", colon);
    text.replace(colon + 2, std::min(end, text.size()) - colon - 2, piece);
  });
}

TEST(ModelJsonFuzz, MutatedFilesAreReadOrRefused) {
  std::mt19937 rng(2025);
  for (const std::string& document : documents()) {
    run(document);
    for (int i = 0; i < 1500; ++i) run(mutate(document, rng));
    for (size_t n = 0; n < document.size(); n += 5) run(document.substr(0, n));
  }
}

}  // namespace
}  // namespace qkv::model_json_fuzz_test

// Encoding and decoding English with GPT-2's vocabulary, and training.
#include <benchmark/benchmark.h>

#include "qkv/base/file.h"
#include "qkv/text/tokenizer.h"
#include "qkv/text/trainer.h"

namespace qkv::text {
namespace {

const std::string& shakespeare() {
  static const std::string text = read_file("data/tinyshakespeare/input.txt");
  return text;
}

const Tokenizer& gpt2() {
  static const Tokenizer tokenizer = Tokenizer::load("tests/golden/gpt2_tokenizer");
  return tokenizer;
}

void set_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * shakespeare().size()));
}

void BM_Encode(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(gpt2().encode(shakespeare(), false));
  set_bytes(state);
}
BENCHMARK(BM_Encode)->Unit(benchmark::kMillisecond);

void BM_Decode(benchmark::State& state) {
  const auto ids = gpt2().encode(shakespeare(), false).ids;
  for (auto _ : state) benchmark::DoNotOptimize(gpt2().decode(ids));
  set_bytes(state);
}
BENCHMARK(BM_Decode)->Unit(benchmark::kMillisecond);

void BM_Load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::load("tests/golden/gpt2_tokenizer"));
}
BENCHMARK(BM_Load)->Unit(benchmark::kMillisecond);

void BM_TrainByteLevelBpe(benchmark::State& state) {
  const std::string_view texts[] = {shakespeare()};
  for (auto _ : state) benchmark::DoNotOptimize(train_byte_level_bpe(texts, {}));
  set_bytes(state);
}
BENCHMARK(BM_TrainByteLevelBpe)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace qkv::text

BENCHMARK_MAIN();

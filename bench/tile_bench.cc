// Matrix products in bf16: oneDNN beside tiles (AMX), in turn, each from cold caches. GFLOP/s, medians.
//   tile_bench                 the layers of GPT-2 124M, and prompts of 512 tokens
//   tile_bench 2048,4096,1024  tokens, outputs, inputs of a layer
// forward: y[T,N] = x W^T; input gradient: dx[T,K] = dy W; weight gradient, in f32: dW[N,K] = dy^T x.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/parallel.h"
#include "qkv/base/rng.h"
#include "qkv/kernels/gemm.h"
#include "qkv/kernels/tile_product.h"
#include "qkv/tensor/tensor.h"

namespace qkv {
namespace {

struct Layer {
  int64_t tokens, out, in;
};
const std::vector<Layer> kLayers = {{1024, 2304, 768},  {1024, 3072, 768}, {1024, 768, 3072},
                                    {1024, 50304, 768}, {512, 2048, 2048}, {512, 5632, 2048},
                                    {512, 2048, 5632}};

// Random values: tiles multiply zeros a quarter faster. Aligned as a model's are.
Tensor normal(int64_t n, uint32_t site) {
  Tensor x = Tensor::empty({n}, DType::bf16);
  const RandomStream stream{.seed = 1, .step = 0, .site = site};
  auto* values = x.mutable_data<BFloat16>();
  for (int64_t i = 0; i < n; ++i)
    values[i] = i < 65521 ? BFloat16(static_cast<float>(stream.normal(i))) : values[i % 65521];
  return x;
}

// Reads more than the caches hold.
void clear_caches() {
  static const std::vector<int64_t> memory((int64_t{256} << 20) / sizeof(int64_t), 1);
  parallel_for(static_cast<int64_t>(memory.size()), 1, [](int64_t begin, int64_t end) {
    benchmark::DoNotOptimize(std::accumulate(memory.begin() + begin, memory.begin() + end, int64_t{0}));
  });
}

double seconds(void (*product)(const Product&), const Product& p) {
  clear_caches();
  const auto start = std::chrono::steady_clock::now();
  product(p);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void tiles(const Product& p) {
  tile_product(p, TileUnit::amx, tile_blocking(p));
}

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size()) / 2, x.end());
  return x[x.size() / 2];
}

// "1,725 | 2,267 | 1.31": GFLOP/s of oneDNN and of tiles, and the ratio.
std::string compare(const Product& p) {
  const double flop = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const int rounds = flop > 5e10 ? 5 : 15;
  const bool own = tiles_available(TileUnit::amx);
  std::vector<double> onednn_times, tile_times;
  onednn_product(p);  // generates its code
  for (int i = 0; i < rounds; ++i) {
    onednn_times.push_back(seconds(onednn_product, p));
    if (own) tile_times.push_back(seconds(tiles, p));
  }
  const double theirs = flop / median(onednn_times) / 1e9;
  if (!own) return fmt::format("{:.0f} | - | -", theirs);
  const double ours = flop / median(tile_times) / 1e9;
  return fmt::format("{:.0f} | {:.0f} | {:.2f}", theirs, ours, ours / theirs);
}

void bench(const Layer& l) {
  const Tensor x = normal(l.tokens * l.in, 1), w = normal(l.out * l.in, 2), dy = normal(l.tokens * l.out, 3);
  Tensor y = Tensor::empty({l.tokens * l.out}, DType::bf16),
         dx = Tensor::empty({l.tokens * l.in}, DType::bf16), dw = Tensor::empty({l.out * l.in}, DType::f32);
  Product forward{.m = l.tokens, .n = l.out, .k = l.in, .out = DType::bf16};
  forward.a = dense(x.raw(), DType::bf16, l.in);
  forward.b = dense(w.raw(), DType::bf16, l.in, true);
  forward.c = y.raw(), forward.c_stride = l.out;
  Product input_grad{.m = l.tokens, .n = l.in, .k = l.out, .out = DType::bf16};
  input_grad.a = dense(dy.raw(), DType::bf16, l.out);
  input_grad.b = dense(w.raw(), DType::bf16, l.in);
  input_grad.c = dx.raw(), input_grad.c_stride = l.in;
  Product weight_grad{.m = l.out, .n = l.in, .k = l.tokens, .out = DType::f32};
  weight_grad.a = dense(dy.raw(), DType::bf16, l.out, true);
  weight_grad.b = dense(x.raw(), DType::bf16, l.in);
  weight_grad.c = dw.raw(), weight_grad.c_stride = l.in;
  for (const auto& [name, p] :
       {std::pair{"forward", &forward}, {"input gradient", &input_grad}, {"weight gradient", &weight_grad}}) {
    fmt::print("| {}; {}, {} | {} | {} |\n", l.tokens, l.out, l.in, name, compare(*p));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  using namespace qkv;
  std::vector<Layer> layers;
  for (const char* text : std::span(argv + 1, argv + argc)) {
    Layer l{};
    if (std::sscanf(text, "%ld,%ld,%ld", &l.tokens, &l.out, &l.in) != 3 ||
        std::min({l.tokens, l.out, l.in}) < 1) {
      fmt::print(stderr, "tile_bench: expected tokens,outputs,inputs, got '{}'\n", text);
      return 2;
    }
    layers.push_back(l);
  }
  if (layers.empty()) layers = kLayers;
  fmt::print("{} threads{}\n\n", num_threads(),
             tiles_available(TileUnit::amx) ? "" : "; no AMX here, or QKV_MAX_ISA excludes it: oneDNN alone");
  fmt::print("| tokens; outputs, inputs | product | oneDNN | tiles | ratio |\n|---|---|---|---|---|\n");
  for (const Layer& l : layers) bench(l);
}

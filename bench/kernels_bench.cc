// Kernels alone, on one core unless a name says otherwise; FLOP and bytes a second are counters.
//   kernels_bench --benchmark_filter=attention
#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <vector>

#include "qkv/base/parallel.h"
#include "qkv/kernels/gemm.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

template <typename T>
std::vector<T> normal(int64_t n, uint32_t site) {
  // A short period is as good as any: no kernel's speed depends on the values.
  std::vector<T> x(n);
  const RandomStream stream{.seed = 1, .step = 0, .site = site};
  for (int64_t i = 0; i < n; ++i) x[i] = i < 4096 ? T(static_cast<float>(stream.normal(i))) : x[i % 4096];
  return x;
}

void count_flops(benchmark::State& state, double each) {
  state.counters["FLOP"] =
      benchmark::Counter(each, benchmark::Counter::kIsIterationInvariantRate);  // "64.8G/s"
}
void count_bytes(benchmark::State& state, double each) {
  state.SetBytesProcessed(static_cast<int64_t>(each) * state.iterations());
}

// Peak of one core: independent chains of f32 fused multiply-adds on zeros. They are in assembly because
// compilers would keep such arrays of chains in memory.
constexpr int kChains = 12, kSteps = 1000;
#define FMA(v, i) "vfmadd231ps %%" v "0, %%" v "0, %%" v #i "\n"
#define FMA_CHAINS(v) \
  FMA(v, 1)           \
  FMA(v, 2)           \
  FMA(v, 3) FMA(v, 4) FMA(v, 5) FMA(v, 6) FMA(v, 7) FMA(v, 8) FMA(v, 9) FMA(v, 10) FMA(v, 11) FMA(v, 12)
#define VECTOR_REGISTERS                                                                                     \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", \
      "xmm13", "xmm14", "xmm15"
void fma_chains(bool wide) {
  asm volatile("vzeroall" ::: VECTOR_REGISTERS);
  for (int i = 0; i < kSteps; ++i)
    if (wide)
      asm volatile(FMA_CHAINS("zmm")::: VECTOR_REGISTERS);
    else
      asm volatile(FMA_CHAINS("ymm")::: VECTOR_REGISTERS);
  asm volatile("vzeroupper" ::: VECTOR_REGISTERS);
}

void fma_peak(benchmark::State& state, const KernelTable& table) {
  const bool wide = table.name == "avx512";
  for (auto _ : state) fma_chains(wide);
  count_flops(state, 2.0 * kChains * kSteps * (wide ? 16 : 8));
}

// The matrix products of GPT-2 124M in training: y = x W^T + b, dx = dy W, dW = dy^T x, for 4 x 256 tokens.
template <typename T>
void product(benchmark::State& state, int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed,
             bool with_bias) {
  const auto a = normal<T>(m * k, 1), b = normal<T>(k * n, 2);
  const auto bias = normal<float>(n, 3);
  std::vector<float> c(m * n);
  const Product p{.m = m,
                  .n = n,
                  .k = k,
                  .out = DType::f32,
                  .a = dense(a.data(), dtype_of<T>, a_transposed ? m : k, a_transposed),
                  .b = dense(b.data(), dtype_of<T>, b_transposed ? k : n, b_transposed),
                  .bias = with_bias ? bias.data() : nullptr,
                  .c = c.data(),
                  .c_stride = n,
                  .accumulate = false};
  for (auto _ : state) {
    matrix_product(p);
    benchmark::ClobberMemory();
  }
  count_flops(state, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
}

template <typename T>
void register_products(const std::string& type) {
  struct Layer {
    const char* name;
    int64_t out, in;
  };
  const int64_t tokens = 1024;
  for (const Layer l : {Layer{"qkv", 2304, 768},
                        {"proj", 768, 768},
                        {"up", 3072, 768},
                        {"down", 768, 3072},
                        {"logits", 50304, 768}}) {
    const std::string name = "product/" + type + "/" + l.name;
    const auto add = [](const std::string& full, auto... arguments) {
      benchmark::RegisterBenchmark(full.c_str(), [=](benchmark::State& s) { product<T>(s, arguments...); })
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    };
    add(name + "/forward", tokens, l.out, l.in, false, true, true);
    add(name + "/dx", tokens, l.in, l.out, false, false, false);
    add(name + "/dw", l.out, l.in, tokens, true, false, false);
    if (l.out != 50304) continue;
    add(name + "/one_token", int64_t{1}, l.out, l.in, false, true, false);
  }
}

// Causal attention, 12 heads of 64, with q, k and v packed as in the model.
template <typename T>
void attention(benchmark::State& state, const KernelTable& table, int64_t batch, int64_t length,
               int64_t queries, bool backward) {
  const int64_t heads = 12, d = 64, width = 3 * heads * d, rows = batch * length;
  const auto qkv = normal<T>(rows * width, 1), dout = normal<T>(rows * heads * d, 2);
  std::vector<T> out(rows * heads * d), dqkv(rows * width);
  std::vector<float> lse(rows * heads);
  std::vector<int32_t> q_offsets, key_lengths(batch, static_cast<int32_t>(length)), block_offsets;
  std::vector<int64_t> blocks;
  for (int64_t s = 0; s <= batch; ++s) q_offsets.push_back(static_cast<int32_t>(s * queries));
  for (int64_t s = 0; s < batch; ++s)
    block_offsets.push_back(static_cast<int32_t>(s)), blocks.push_back(s * length);
  const Attention<T> a{.sequences = batch,
                       .heads = heads,
                       .kv_heads = heads,
                       .d_qk = d,
                       .d_vo = d,
                       .q_offsets = q_offsets.data(),
                       .key_lengths = key_lengths.data(),
                       .block_offsets = block_offsets.data(),
                       .blocks = blocks.data(),
                       .block_rows = length,
                       .mask = Mask::causal(),
                       .term = {},
                       .scale = 0.125f,
                       .dropout = {},
                       .q = qkv.data(),
                       .q_stride = width,
                       .k = qkv.data() + heads * d,
                       .k_stride = width,
                       .v = qkv.data() + 2 * heads * d,
                       .v_stride = width,
                       .out = out.data(),
                       .out_stride = heads * d,
                       .lse = lse.data()};
  const AttentionGrad<T> g{a,         dout.data(),
                           heads * d, dqkv.data(),
                           width,     dqkv.data() + heads * d,
                           width,     dqkv.data() + 2 * heads * d,
                           width};
  std::vector<float> scratch(attention_scratch(a)), grad_scratch(attention_grad_scratch(a, length));
  const TypedKernels<T>& kernel = table.typed<T>();
  const auto forward = [&] {
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < queries; i += kQueryTile) kernel.attention(a, s, h, i, scratch.data());
  };
  forward();
  for (auto _ : state) {
    if (!backward)
      forward();
    else
      for (int64_t s = 0; s < batch; ++s)
        for (int64_t h = 0; h < heads; ++h) kernel.attention_grad(g, s, h, grad_scratch.data());
    benchmark::ClobberMemory();
  }
  // Counts the pairs that the mask allows: S and O forward; S, dP, dV, dK and dQ backward.
  const auto l = static_cast<double>(length), n = static_cast<double>(queries);
  const double pairs = static_cast<double>(batch * heads) * (n * l - n * (n - 1) / 2);
  count_flops(state, pairs * 2 * static_cast<double>(d) * (backward ? 5 : 2));
}

template <typename T>
void residual_norm(benchmark::State& state, const KernelTable& table, bool backward) {
  const int64_t rows = 1024, width = 768;
  const auto x = normal<T>(rows * width, 1), branch = normal<T>(rows * width, 2);
  const auto gamma = normal<float>(width, 3), beta = normal<float>(width, 4);
  std::vector<T> sum(rows * width), y(rows * width), dsum(rows * width);
  std::vector<float> mean(rows), rstd(rows), dgamma(width), dbeta(width);
  const ResidualNorm<T> f{rows,        width, x.data(),   branch.data(), {},          gamma.data(),
                          beta.data(), 1e-5f, sum.data(), y.data(),      mean.data(), rstd.data()};
  const ResidualNormGrad<T> b{rows,        width,         branch.data(), x.data(),
                              sum.data(),  gamma.data(),  mean.data(),   rstd.data(),
                              dsum.data(), dgamma.data(), dbeta.data()};
  table.typed<T>().residual_norm(f);
  for (auto _ : state) {
    if (backward)
      table.typed<T>().residual_norm_grad(b);
    else
      table.typed<T>().residual_norm(f);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 4.0 * rows * width * sizeof(T));
}

template <typename T>
void gelu(benchmark::State& state, const KernelTable& table, Activation kind, bool backward) {
  const int64_t n = 1024 * 3072;
  const auto x = normal<T>(n, 1), dy = normal<T>(n, 2);
  std::vector<T> y(n);
  for (auto _ : state) {
    if (backward)
      table.typed<T>().activation_grad(kind, n, x.data(), dy.data(), y.data());
    else
      table.typed<T>().activation(kind, n, x.data(), y.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, (backward ? 3.0 : 2.0) * n * sizeof(T));
}

// In place for f32, as in training.
template <typename T>
void cross_entropy(benchmark::State& state, const KernelTable& table) {
  const int64_t rows = 64, vocab = 50257, stride = 50304;
  const auto logits = normal<float>(rows * stride, 1);
  std::vector<T> dlogits(rows * stride);
  std::vector<int32_t> target(rows, 17);
  std::vector<float> losses(rows);
  const CrossEntropy<T> c{rows,          vocab, logits.data(), stride,
                          target.data(), 1.0f,  losses.data(), dlogits.data()};
  for (auto _ : state) {
    table.typed<T>().cross_entropy(c);
    benchmark::ClobberMemory();
  }
  count_bytes(state, static_cast<double>(rows * stride) * (sizeof(float) + sizeof(T)));
}

void adamw(benchmark::State& state, const KernelTable& table, bool with_shadow) {
  const int64_t n = 10'000'000;
  auto w = normal<float>(n, 1);
  const auto g = normal<float>(n, 2);
  std::vector<float> m(n), v(n);
  std::vector<BFloat16> shadow(n);
  const Update u{.rule = Rule::adam,
                 .lr = 1e-4f,
                 .decay = 0.1f,
                 .beta1 = 0.9f,
                 .beta2 = 0.95f,
                 .epsilon = 1e-8f,
                 .bias1 = 0.1f,
                 .bias2 = 0.05f};
  for (auto _ : state) {
    table.update(u, n, w.data(), g.data(), m.data(), v.data(), with_shadow ? shadow.data() : nullptr);
    benchmark::ClobberMemory();
  }
  count_bytes(state,
              (7.0 * sizeof(float) + (with_shadow ? 2 : 0)) * static_cast<double>(n));  // 4 read, 3 written
}

template <typename F>
void add(const std::string& name, const F& f) {
  benchmark::RegisterBenchmark(name.c_str(), f)->Unit(benchmark::kMillisecond);
}

template <typename T>
void register_typed(const KernelTable& table, const std::string& type) {
  const std::string where = "/" + type + "/" + std::string(table.name);
  const KernelTable* t = &table;
  using State = benchmark::State;
  add("attention/4x256" + where, [=](State& s) { attention<T>(s, *t, 4, 256, 256, false); });
  add("attention_grad/4x256" + where, [=](State& s) { attention<T>(s, *t, 4, 256, 256, true); });
  add("attention/1x8192" + where, [=](State& s) { attention<T>(s, *t, 1, 8192, 8192, false); });
  add("attention_grad/1x8192" + where, [=](State& s) { attention<T>(s, *t, 1, 8192, 8192, true); });
  add("attention/one_query_of_1024" + where, [=](State& s) { attention<T>(s, *t, 1, 1024, 1, false); });
  add("residual_norm/1024x768" + where, [=](State& s) { residual_norm<T>(s, *t, false); });
  add("residual_norm_grad/1024x768" + where, [=](State& s) { residual_norm<T>(s, *t, true); });
  add("gelu/1024x3072" + where, [=](State& s) { gelu<T>(s, *t, Activation::gelu, false); });
  add("gelu_tanh/1024x3072" + where, [=](State& s) { gelu<T>(s, *t, Activation::gelu_tanh, false); });
  add("gelu_tanh_grad/1024x3072" + where, [=](State& s) { gelu<T>(s, *t, Activation::gelu_tanh, true); });
  add("cross_entropy/64x50304" + where, [=](State& s) { cross_entropy<T>(s, *t); });
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  using namespace qkv;
  for (int i = 1; i < kernel_table_count(); ++i) {
    const KernelTable& table = kernel_table(i);
    add("fma_peak/" + std::string(table.name), [&table](benchmark::State& s) { fma_peak(s, table); });
    register_typed<float>(table, "f32");
    register_typed<BFloat16>(table, "bf16");
    for (const bool shadow : {false, true})
      add(std::string("adamw/10M/") + (shadow ? "shadow/" : "") + std::string(table.name),
          [&table, shadow](benchmark::State& s) { adamw(s, table, shadow); });
  }
  register_products<float>("f32");
  register_products<BFloat16>("bf16");
  benchmark::AddCustomContext("threads of the products", std::to_string(num_threads()));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}

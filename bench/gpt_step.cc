// A training step of GPT-2 124M, 4 x 256 tokens: forward, backward, AdamW; beside the sum of its matrix
// products timed alone. Prints one line a measure: "name milliseconds".
//
//   gpt_step [--dtype f32|bf16] [--batch 4] [--length 256] [--steps 5] [--layers 12] [--width 768] [--heads
//   12]
//             [--vocab 50257]
//             [--lora RANK [--lora-targets c_attn]]  # what else there is stays as it is
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>

#include "qkv/base/parallel.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/kernels/gemm.h"
#include "qkv/nn/adapter.h"
#include "qkv/train/run/trainer.h"

namespace qkv {
namespace {

double milliseconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// One product with its two gradients, as LinearNode runs them; `times` products of this shape a step.
double linear_products(int64_t rows, int64_t in, int64_t out, DType t, DType out_type, int times) {
  const auto random = [](int64_t n, DType type) {
    Tensor x = Tensor::empty({n}, DType::f32);
    for (int64_t i = 0; i < n; ++i)
      x.mutable_data<float>()[i] = static_cast<float>((i * 2654435761u >> 8) % 1000) / 1000.0f - 0.5f;
    if (type == DType::f32) return x;
    Tensor b = Tensor::empty({n}, type);
    kernels().bf16.from_f32(n, x.data<float>(), b.mutable_data<BFloat16>());
    return b;
  };
  const Tensor x = random(rows * in, t), w = random(out * in, t), dy = random(rows * out, t);
  Tensor y = Tensor::empty({rows * out}, out_type), dx = Tensor::empty({rows * in}, t),
         dw = Tensor::empty({out * in}, DType::f32);
  const auto run = [&] {
    matrix_product({.m = rows,
                    .n = out,
                    .k = in,
                    .out = out_type,
                    .a = dense(x.raw(), t, in),
                    .b = dense(w.raw(), t, in, true),
                    .c = y.raw(),
                    .c_stride = out});
    matrix_product({.m = rows,
                    .n = in,
                    .k = out,
                    .out = t,
                    .a = dense(dy.raw(), t, out),
                    .b = dense(w.raw(), t, in),
                    .c = dx.raw(),
                    .c_stride = in});
    matrix_product({.m = out,
                    .n = in,
                    .k = rows,
                    .out = DType::f32,
                    .a = dense(dy.raw(), t, out, true),
                    .b = dense(x.raw(), t, in),
                    .c = dw.raw(),
                    .c_stride = in});
  };
  run();
  std::vector<double> times_taken;
  for (int i = 0; i < 5; ++i) times_taken.push_back(milliseconds(run));
  return times * median(times_taken);
}

struct Options {
  std::string dtype = "bf16";
  int64_t batch = 4, length = 256, steps = 5, layers = 12, width = 768, heads = 12, vocab = 50257;
  float dropout = 0;
  bool recompute = false;
  int64_t lora = 0;
  std::vector<std::string> lora_targets = {"all-linear"};
};

void run(const Options& o) {
  const DType t = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  const int64_t rows = o.batch * o.length;
  ModelSpec spec = gpt2_spec(o.vocab, std::max<int64_t>(o.length, 1024), o.width, o.layers, o.heads);
  spec.embedding_dropout = spec.attention.dropout = spec.residual_dropout = o.dropout;
  if (o.lora > 0) {
    spec.lora = {.rank = o.lora, .alpha = static_cast<float>(2 * o.lora), .targets = o.lora_targets};
    spec.lora.adapters = adapters_of(spec);
  }
  auto model = std::make_unique<Transformer>(spec);
  if (o.lora > 0)
    for (Parameter& p : model->parameters().all()) p.frozen = !Adapters::is_adapter(p.name);
  TrainingState training(std::move(model), StepConfig{}, {.compute = t, .seed = 1, .recompute = o.recompute});
  TokenStream stream;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < rows + 1; ++i)
    tokens.push_back(static_cast<int32_t>(RandomStream{7, 0, 0}.below(i, o.vocab)));
  stream.append(tokens);
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < o.batch; ++b) starts.push_back(b * o.length);
  const Batch batch = cut_windows(stream, starts, o.length);

  Parameters& parameters = training.model().parameters();
  std::vector<double> forward_ms, backward_ms, optimizer_ms, step_ms;
  for (int64_t i = 1; i <= o.steps + 1; ++i) {
    Context context;
    context.training = true;
    CrossEntropyResult r;
    parameters.reset_gradients();
    const double f = milliseconds(
        [&] { r = training.model().loss(batch, batch.targets, context, 1 / static_cast<float>(rows)); });
    const double b = milliseconds([&] { backward(r.loss); });
    const double u = milliseconds([&] {
      parameters.complete_gradients();
      const double norm = gradient_norm(parameters);
      training.optimizer().update(parameters, i, 1e-4, norm > 1 ? 1 / norm : 1);
    });
    if (i == 1) continue;  // allocations and oneDNN's code generation
    forward_ms.push_back(f);
    backward_ms.push_back(b);
    optimizer_ms.push_back(u);
    step_ms.push_back(f + b + u);
  }
  const size_t peak = memory_use().peak;
  const int layers = static_cast<int>(o.layers);
  double products = linear_products(rows, o.width, 3 * o.width, t, t, layers) +
                    linear_products(rows, o.width, o.width, t, t, layers) +
                    linear_products(rows, o.width, 4 * o.width, t, t, layers) +
                    linear_products(rows, 4 * o.width, o.width, t, t, layers);
  const double unembedding =
      linear_products(std::min<int64_t>(rows, 320), o.width, o.vocab / 64 * 64 + 64, t, DType::f32, 1) *
      static_cast<double>(rows) / static_cast<double>(std::min<int64_t>(rows, 320));
  fmt::print("model {} layers, width {}, vocabulary {}, {} x {} tokens, {}, {} threads, kernels {}\n",
             o.layers, o.width, o.vocab, o.batch, o.length, o.dtype, num_threads(), kernels().name);
  fmt::print("forward_and_loss_gradient {:.1f}\nbackward {:.1f}\noptimizer {:.1f}\nstep {:.1f}\n",
             median(forward_ms), median(backward_ms), median(optimizer_ms), median(step_ms));
  fmt::print("products_alone {:.1f}\n", products + unembedding);
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  fmt::print("peak_memory_mb {:.0f}\npeak_tensors_mb {:.0f}\n", static_cast<double>(use.ru_maxrss) / 1e3,
             static_cast<double>(peak) / 1e6);
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  qkv::Options o;
  CLI::App app{"Times a training step of a GPT"};
  app.add_option("--dtype", o.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--batch", o.batch);
  app.add_option("--length", o.length);
  app.add_option("--steps", o.steps);
  app.add_option("--layers", o.layers);
  app.add_option("--width", o.width);
  app.add_option("--heads", o.heads);
  app.add_option("--vocab", o.vocab);
  app.add_option("--dropout", o.dropout);
  app.add_flag("--recompute", o.recompute);
  app.add_option("--lora", o.lora, "Rank of adapters; 0: everything is learnt");
  app.add_option("--lora-targets", o.lora_targets, "Modules that have one");
  CLI11_PARSE(app, argc, argv);
  try {
    qkv::run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "gpt_step: {}\n", e.what());
    return 1;
  }
}

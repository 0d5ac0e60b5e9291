// Measures the memory of a decoder's activations in a training step: the peak of the process, less what it
// has before the step with all parameters and gradients. Prints
//   layers before_mb activations_mb step_ms
// Reversible blocks that are recomputed keep the ends of the stack alone, however many there are.
//
//   reversible_memory [--layers 6] [--branches serial|reversible] [--recompute] [--length 2048] [--width 256]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>

#include "bench/measure.h"
#include "qkv/models/transformer.h"

namespace qkv {
namespace {

struct Options {
  std::string branches = "serial";
  int64_t layers = 6, length = 2048, width = 256;
  bool recompute = false;
};

void step(Transformer& model, const Options& o, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(i * i % 61));
  model.parameters().reset_gradients();
  Context context;
  context.training = true;
  backward(model
               .loss({ids, Layout::of({static_cast<int32_t>(length)})}, ids, context,
                     1 / static_cast<float>(o.length))
               .loss);
  model.parameters().complete_gradients();
}

void run(const Options& o) {
  ModelSpec spec = gpt2_spec(64, o.length, o.width, o.layers, 4);
  spec.branches = from_name<Branches>(o.branches);
  spec.tied = spec.branches != Branches::reversible;
  Transformer model(spec);
  model.parameters().prepare_training(DType::f32, 1);
  model.set_recompute(o.recompute);
  step(model, o, 16);  // touches parameters, gradients and what the libraries keep
  const double before = peak_mb();
  const auto start = std::chrono::steady_clock::now();
  step(model, o, o.length);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} {:.1f} {:.1f} {:.0f}\n", o.layers, before, peak_mb() - before, ms);
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  qkv::Options o;
  CLI::App app("Measures the memory of activations.");
  app.add_option("--layers", o.layers);
  app.add_option("--branches", o.branches);
  app.add_option("--length", o.length);
  app.add_option("--width", o.width);
  app.add_flag("--recompute", o.recompute);
  CLI11_PARSE(app, argc, argv);
  try {
    qkv::run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "reversible_memory: {}\n", e.what());
    return 1;
  }
  return 0;
}

// An encoder's forward pass and training step (BERT's shape, classes of sequences), or the training step of
// an encoder-decoder (pairs of sequences). Prints one line a measure: "name value".
//
//   sequence_step encoder [--batch 8] [--length 128] [--layers 12] [--width 768] [--heads 12] ...
//   sequence_step pairs [--batch 64] [--length 20] [--layers 3] [--width 256] [--heads 8] [--vary] ...
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <functional>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/train/run/trainer.h"

namespace qkv {
namespace {

struct Options {
  std::string dtype = "bf16";
  int64_t batch = 8, length = 128, steps = 5, layers = 12, width = 768, heads = 12, hidden = 3072,
          vocab = 30522;
  float dropout = 0;
  bool vary = false;  // lengths from 1/4 to 7/4 of `length`
};

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// Median milliseconds of f(i), i from 1 to `times`, after a first call.
double milliseconds(int64_t times, const std::function<void(int64_t)>& f) {
  std::vector<double> taken;
  for (int64_t i = 0; i <= times; ++i) {
    const auto start = std::chrono::steady_clock::now();
    f(i + 1);
    const std::chrono::duration<double, std::milli> t = std::chrono::steady_clock::now() - start;
    if (i > 0) taken.push_back(t.count());
  }
  return median(taken);
}

// The peer draws the same lengths.
int64_t length_of(const Options& o, int64_t i) {
  return o.vary ? o.length / 4 + (i * 7919) % (3 * o.length / 2 + 1) : o.length;
}

std::vector<int32_t> random_tokens(const Options& o, int64_t count, uint32_t site) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(RandomStream{7, 0, site}.below(static_cast<uint64_t>(i), o.vocab)));
  return tokens;
}

ModelSpec with_sizes(ModelSpec spec, const Options& o) {
  spec.hidden = o.hidden;
  spec.embedding_dropout = spec.attention.dropout = spec.residual_dropout = o.dropout;
  return spec;
}

// So many random tokens in sequences of the wanted lengths.
void draw(const Options& o, uint32_t site, Indices& ids, Layout& layout) {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < o.batch; ++i) lengths.push_back(static_cast<int32_t>(length_of(o, i)));
  layout = Layout::of(lengths);
  ids = random_tokens(o, layout.rows(), site);
}

void report_step(const Options& o, const ModelSpec& spec, const Batch& batch, DType t, float smoothing) {
  StepConfig config;
  config.terms.label_smoothing = smoothing;
  TrainingState training(std::make_unique<Transformer>(spec), config, {.compute = t, .seed = 1});
  const double ms = milliseconds(o.steps, [&](int64_t step) { training.step({batch}, step, 1000); });
  fmt::print("step {:.1f}\ntokens_per_second {:.0f}\n", ms,
             static_cast<double>(batch.layout.rows()) / ms * 1e3);
}

void encoder(const Options& o, DType t) {
  ModelSpec spec =
      with_sizes(bert_spec(o.vocab, std::max<int64_t>(o.length * 2, 512), o.width, o.layers, o.heads), o);
  spec.head_width = 0;
  spec.unembedding_bias = false;
  spec.output = Output::sequence_classes;
  spec.labels = {"no", "yes"};
  spec.pooler = true;
  Batch batch;
  draw(o, 0, batch.ids, batch.layout);
  std::vector<int32_t> classes;
  for (int64_t i = 0; i < o.batch; ++i) classes.push_back(static_cast<int32_t>(i % 2));
  batch.targets = classes;
  batch.target_count = o.batch;
  {
    Transformer model(spec);
    model.parameters().draw(1, t);
    const NoGrad no_grad;
    const double ms = milliseconds(o.steps, [&](int64_t) {
      const Context context;
      model.classes(model.hidden(batch, context), batch, context);
    });
    fmt::print("forward {:.1f}\n", ms);
  }
  report_step(o, spec, batch, t, 0);
}

void pairs(const Options& o, DType t) {
  ModelSpec spec = with_sizes(gpt2_spec(o.vocab, o.length * 2, o.width, o.layers, o.heads), o);
  spec.architecture = Architecture::encoder_decoder;
  spec.encoder_layers = o.layers;
  spec.norm_placement = NormPlacement::post;
  spec.activation = Activation::relu;
  spec.positions = Positions::sinusoidal;
  spec.embedding_scaled = true;
  Batch batch;
  draw(o, 0, batch.source, batch.source_layout);
  draw(o, 1, batch.ids, batch.layout);
  batch.targets = random_tokens(o, batch.layout.rows(), 2);
  batch.target_count = batch.layout.rows();
  report_step(o, spec, batch, t, 0.1F);
}

void run(const Options& o, bool of_pairs) {
  const DType t = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  fmt::print("{} layers, width {}, vocabulary {}, {} x {} tokens, {}, {} threads, kernels {}\n", o.layers,
             o.width, o.vocab, o.batch, o.length, o.dtype, num_threads(), kernels().name);
  of_pairs ? pairs(o, t) : encoder(o, t);
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  fmt::print("peak_memory_mb {:.0f}\n", static_cast<double>(use.ru_maxrss) / 1e3);
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  qkv::Options o;
  CLI::App app{"Times encoders and encoder-decoders"};
  app.require_subcommand(1);
  const CLI::App* encoder = app.add_subcommand("encoder", "BERT's shape");
  const CLI::App* pairs = app.add_subcommand("pairs", "an encoder-decoder");
  for (CLI::App* sub : app.get_subcommands({})) {
    sub->add_option("--dtype", o.dtype)->check(CLI::IsMember({"f32", "bf16"}));
    sub->add_option("--batch", o.batch);
    sub->add_option("--length", o.length);
    sub->add_option("--steps", o.steps);
    sub->add_option("--layers", o.layers);
    sub->add_option("--width", o.width);
    sub->add_option("--heads", o.heads);
    sub->add_option("--hidden", o.hidden);
    sub->add_option("--vocab", o.vocab);
    sub->add_option("--dropout", o.dropout);
    sub->add_flag("--vary", o.vary, "lengths from 1/4 to 7/4");
  }
  CLI11_PARSE(app, argc, argv);
  try {
    qkv::run(o, pairs->parsed());
  } catch (const std::exception& e) {
    fmt::print(stderr, "sequence_step: {}\n", e.what());
    return 1;
  }
  return encoder->parsed() || pairs->parsed() ? 0 : 1;
}

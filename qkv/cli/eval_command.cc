// qkv eval: how well a model predicts a text.
#include <cstdio>

#include "qkv/base/json.h"
#include "qkv/cli/command.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/corpus.h"
#include "qkv/train/trainer.h"

namespace qkv {
namespace {

struct Options {
  std::string dir, data, separator, dtype = "f32";
  int64_t batch = 16;
  bool json = false;
};

void run(const Options& o) {
  const std::string dir = resolve_model_dir(o.dir);
  const auto model = load_model(dir, o.dtype == "bf16" ? DType::bf16 : DType::f32);
  const TokenStream stream = tokenize_file(o.data, o.separator, text::Tokenizer::load(dir));
  check(stream.size() >= 2, "{}: too short: nothing to predict", o.data);
  const Evaluation e = evaluate(*model, stream, o.batch);
  check(e.tokens > 0, "{}: nothing to predict: every document has one token", o.data);
  if (o.json) {
    const OrderedJson out = {{"loss", e.loss()},
                             {"perplexity", e.perplexity()},
                             {"nats_per_character", e.nats_per_character()},
                             {"bits_per_byte", e.bits_per_byte()},
                             {"tokens", e.tokens},
                             {"characters", e.characters}};
    std::printf("%s\n", out.dump().c_str());
  } else {
    fmt::print("loss                {:.4f} nats a token ({} tokens)\n", e.loss(), e.tokens);
    fmt::print("perplexity          {:.2f}\n", e.perplexity());
    fmt::print("nats per character  {:.4f} ({} characters)\n", e.nats_per_character(), e.characters);
    fmt::print("bits per byte       {:.4f}\n", e.bits_per_byte());
  }
}

}  // namespace

void add_eval_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("eval", "Measure how well a model predicts a text");
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  c->add_option("--data", o->data, "Text file")->required();
  c->add_option("--separator", o->separator, "Divides the file into documents");
  c->add_option("--batch", o->batch, "Windows at a time")->check(CLI::Range(1, 100000));
  c->add_option("--dtype", o->dtype, "Type of the matrix products: f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  c->add_flag("--json", o->json, "Print one JSON object");
  c->footer(
      "The text is predicted in windows of the model's context that do not overlap.\nExample: qkv eval "
      "runs/shakespeare --data other.txt");
  c->callback([o] { run(*o); });
}

}  // namespace qkv

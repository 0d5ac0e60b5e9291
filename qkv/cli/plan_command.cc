// qkv plan: what a run will take.
#include <fmt/format.h>

#include <cstdio>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/machine.h"
#include "qkv/base/progress.h"
#include "qkv/cli/command.h"
#include "qkv/train/corpus.h"
#include "qkv/train/plan.h"

namespace qkv {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> set;
  bool json = false, no_timing = false;
};

void run(const Options& o) {
  TrainConfig config = read_train_config(o.config, o.set);
  check(config.model.architecture == Architecture::decoder && config.objective == Objective::next_token,
        "{}: plans are made for decoders only that continue texts: qkv train --dry-run tells the memory of "
        "this run",
        o.config);
  check(config.mix.empty(),
        "{}: plans are made for one data set: qkv train --dry-run tells the memory of this run", o.config);
  const Corpus corpus = load_corpus(config);
  config.model.vocab_size = static_cast<int64_t>(corpus.tokenizer.vocab_size());
  const int64_t limit = memory_limit(config), most = largest_batch(config, limit);
  const int64_t batch = config.batch == 0 ? std::max<int64_t>(1, most) : config.batch;
  const MemoryPlan memory = memory_plan(config, batch);
  const int64_t parameters = Transformer(config.model).parameters().count();
  const int64_t tokens = batch * config.accumulate * config.window_length();
  const double flops = flops_per_step(config, batch);
  const bool timed = !o.no_timing && memory.total() <= limit;
  const double seconds = timed ? measure_step_seconds(config, batch) : 0;
  const double passes = static_cast<double>(tokens) * static_cast<double>(config.steps) /
                        static_cast<double>(corpus.text.train.size());
  if (o.json) {
    OrderedJson parts;
    for (const auto& [name, bytes] : memory.parts()) parts[name] = bytes;
    OrderedJson out = {{"parameters", parameters},
                       {"tokens_per_step", tokens},
                       {"passes", passes},
                       {"memory", parts},
                       {"memory_total", memory.total()},
                       {"memory_limit", limit},
                       {"flops_per_step", flops},
                       {"batch", batch},
                       {"largest_batch", most}};
    if (timed) out["seconds_per_step"] = seconds;
    if (timed) out["seconds"] = seconds * static_cast<double>(config.steps);
    fmt::print("{}\n", out.dump(2));
    return;
  }
  fmt::print("parameters     {:L}\n", parameters);
  fmt::print("tokens         {} a step ({} x {} x {}), {} steps: {:.2f} passes over the text\n", tokens,
             batch, config.accumulate, config.window_length(), config.steps, passes);
  fmt::print("memory         {} of {} {}\n", memory_text(static_cast<double>(memory.total())),
             memory_text(static_cast<double>(limit)), config.memory_gb > 0 ? "allowed" : "free");
  for (const auto& [name, bytes] : memory.parts())
    if (bytes > 0) fmt::print("  {:<12} {:>9}\n", name, memory_text(static_cast<double>(bytes)));
  fmt::print("arithmetic     {:.1f} GFLOP a step\n", flops / 1e9);
  if (timed)
    fmt::print("time           {:.3g} s a step ({:.0f} GFLOP/s, {:.0f} tokens/s), {} for all steps\n",
               seconds, flops / seconds / 1e9, static_cast<double>(tokens) / seconds,
               duration_text(seconds * static_cast<double>(config.steps)));
  fmt::print("largest batch  {}\n", most > 0 ? std::to_string(most) : "none fits");
  if (memory.total() > limit) fmt::print("this run does not fit\n");
}

}  // namespace

void add_plan_command(Command& app) {
  auto o = std::make_shared<Options>();
  Command* c = app.add_subcommand("plan", "What a training run will take: memory, arithmetic, time");
  c->add_option("CONFIG", o->config, "Configuration file (TOML)")->required();
  c->add_option("--set", o->set, "Override one key: section.key=value (repeatable)")->one_value();
  c->add_flag("--no-timing", o->no_timing, "Do not run some steps to tell the time");
  c->add_flag("--json", o->json, "Print JSON");
  c->footer(
      "Time is told from some steps of models of one and two layers of the configuration's sizes.\n"
      "train.batch = \"fit\" trains with the largest batch.\n"
      "Example: qkv plan examples/shakespeare.toml --set train.batch=64");
  c->callback([o] { run(*o); });
}

}  // namespace qkv

// qkv plan: predicts the memory and time of a run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/machine.h"
#include "qkv/base/progress.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/train/run/plan.h"

namespace qkv {
namespace {

struct PlanOptions {
  std::string config;
  std::vector<std::string> set;
  bool json = false, no_timing = false;
  int ranks = 1;
};

// Memory and time of a run.
struct Plan {
  ParameterCount parameters;
  int64_t tokens, batch, limit;
  std::optional<int64_t> largest_batch, largest_batch_tokens;  // for windows; for sequences
  MemoryPlan memory;
  int ranks;
  double flops, passes;           // passes 0: mixed datasets have passes of their own
  std::optional<double> seconds;  // per step

  bool fits() const { return memory.total() <= limit; }
};

Plan plan_of(TrainConfig& config, bool timed, int ranks) {
  const std::unique_ptr<Task> task = make_task(config, nullptr);
  complete_model(config, *task);
  const bool windows = config.objective == Objective::next_token && config.mix.empty();
  Plan p;
  p.limit = memory_limit(config);
  const auto is_of_windows = [](const MixedSet& set) { return set.objective == Objective::next_token; };
  if (windows || std::ranges::any_of(config.mix, is_of_windows))
    p.largest_batch = largest_batch(config, p.limit);
  p.batch = config.batch == 0 ? std::max<int64_t>(1, p.largest_batch.value_or(1)) : config.windows_of_pass();
  if (!windows && (config.mix.empty() || !std::ranges::all_of(config.mix, is_of_windows)))
    p.largest_batch_tokens = largest_batch_tokens(config, p.batch, p.limit);
  find_steps(config, *task, p.batch);
  p.ranks = ranks;
  p.memory = memory_plan(config, p.batch, ranks);
  p.parameters = count_parameters(config);
  p.tokens = std::llround(task->tokens_a_step(p.batch));
  p.flops = flops_per_step(config, p.batch);
  const double epoch = task->steps_per_epoch(p.batch);
  p.passes = epoch > 0 ? static_cast<double>(config.steps) / epoch : 0;
  if (timed && p.fits())
    p.seconds = windows && config.model.architecture == Architecture::decoder
                    ? measure_step_seconds(config, p.batch)
                    : measure_step_seconds(config, *task, p.batch);
  return p;
}

void print_json(const TrainConfig& config, const Plan& p) {
  OrderedJson parts;
  for (const auto& [name, bytes] : p.memory.parts()) parts[name] = bytes;
  OrderedJson out = {{"parameters", p.parameters.all},
                     {"tokens_per_step", p.tokens},
                     {"steps", config.steps},
                     {"passes", p.passes},
                     {"memory", parts},
                     {"memory_total", p.memory.total()},
                     {"memory_limit", p.limit},
                     {"flops_per_step", p.flops},
                     {"batch", p.batch},
                     {"largest_batch", p.largest_batch.value_or(0)}};
  if (p.largest_batch_tokens) out["largest_batch_tokens"] = *p.largest_batch_tokens;
  if (p.seconds) out["seconds_per_step"] = *p.seconds;
  if (p.seconds) out["seconds"] = *p.seconds * static_cast<double>(config.steps);
  print(out.dump(2) + "\n");
}

void print_text(const TrainConfig& config, const Plan& p) {
  const bool windows = config.objective == Objective::next_token && config.mix.empty();
  const std::string of =
      windows ? fmt::format(" ({} x {} x {})", p.batch, config.passes(), config.window_length())
              : " on average";
  const std::string passes =
      p.passes > 0 ? fmt::format(": {:.2f} passes over the {}", p.passes, windows ? "text" : "data") : "";
  std::string out = fmt::format("parameters     {}{}\n", p.parameters.all, p.parameters.trainable_text());
  out +=
      fmt::format("tokens         {} a step{}, {}{}\n", p.tokens, of, counted(config.steps, "step"), passes);
  out += fmt::format("memory         {} of {} {}\n", memory_text(static_cast<double>(p.memory.total())),
                     memory_text(static_cast<double>(p.limit)), config.memory_gb > 0 ? "allowed" : "free");
  if (p.ranks > 1) out.insert(out.size() - 1, fmt::format(", on each of {} ranks", p.ranks));
  for (const auto& [name, bytes] : p.memory.parts())
    if (bytes > 0) out += fmt::format("  {:<12} {:>9}\n", name, memory_text(static_cast<double>(bytes)));
  out += fmt::format("arithmetic     {:.1f} GFLOP a step\n", p.flops / 1e9);
  if (p.seconds)
    out += fmt::format("time           {:.3g} s a step ({:.0f} GFLOP/s, {:.0f} tokens/s), {} for all steps\n",
                       *p.seconds, p.flops / *p.seconds / 1e9, static_cast<double>(p.tokens) / *p.seconds,
                       duration_text(*p.seconds * static_cast<double>(config.steps)));
  const auto largest = [](int64_t n) { return n > 0 ? std::to_string(n) : "none fits"; };
  if (p.largest_batch) out += fmt::format("largest batch  {}\n", largest(*p.largest_batch));
  if (p.largest_batch_tokens)
    out += fmt::format("largest batch_tokens  {}\n", largest(*p.largest_batch_tokens));
  print(out);
}

void run_plan(const PlanOptions& o) {
  TrainConfig config = read_train_config(o.config, o.set);
  if (o.ranks > config.shards)
    throw UsageError(
        fmt::format("--ranks: {} ranks need train.shards of at least {}, a power of two", o.ranks, o.ranks));
  const Plan plan = plan_of(config, !o.no_timing, o.ranks);
  o.json ? print_json(config, plan) : print_text(config, plan);
  check(plan.fits(), "{}: this run does not fit: it needs {}, but {} {}", o.config,
        memory_text(static_cast<double>(plan.memory.total())), memory_text(static_cast<double>(plan.limit)),
        config.memory_gb > 0 ? "are allowed (train.memory_gb)" : "are free");
}

}  // namespace

void add_plan_command(Command& app) {
  auto o = std::make_shared<PlanOptions>();
  Command* c = app.add_subcommand("plan", "Estimate the memory and time of a training run");
  c->add_option("CONFIG", o->config, "Configuration file (TOML)")->required();
  c->add_option("--set", o->set, "Override a setting: section.key=value (repeatable)")->one_value();
  c->add_flag("--no-timing", o->no_timing, "Do not run training steps to measure the time");
  c->add_flag("--json", o->json, "Print JSON");
  c->add_option("--ranks", o->ranks,
                "Plan the memory of each of so many ranks (mpirun -n); the time is that of one")
      ->range(1, 1 << 16);
  c->footer(
      "The time is measured: some steps of the run, or of a decoder's one and two layers.\n"
      "The exit status is 1 when the run does not fit into memory.\n"
      "train.batch = \"fit\" trains with the largest batch.\n"
      "Example: qkv plan examples/shakespeare.toml --set train.batch=64");
  c->callback([o] { run_plan(*o); });
}

}  // namespace qkv

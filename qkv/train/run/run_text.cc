#include "qkv/train/run/run_text.h"

#include <fmt/format.h>

#include <cmath>

#include "qkv/base/machine.h"
#include "qkv/base/parallel.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/run/plan.h"

namespace qkv {
namespace {

// "1000 steps (58 epochs)".
std::string steps_text(const RunSetup& run) {
  constexpr double kMany = 20;  // epochs after which most texts are known by heart
  const TrainConfig& config = run.config;
  const std::string out = counted(config.steps, "step");
  const double epoch = run.task->steps_per_epoch(run.state.batch);
  if (epoch <= 0) return out;
  const double passes = static_cast<double>(config.steps) / epoch;
  const bool overfits = config.objective == Objective::next_token && passes >= kMany && config.patience == 0;
  return out + fmt::format(" ({}{})",
                           passes < 9.95 ? fmt::format("{:.2g} epochs", passes)
                                         : fmt::format("{} epochs", std::llround(passes)),
                           overfits ? ": many for a text; train.patience = 3 stops in time" : "");
}

// The command that uses what a run has learnt.
std::string next_command(const TrainConfig& c) {
  const char* command = spec_of(c.objective).next_command;
  if (command == nullptr)
    return fmt::format("set model.from = \"{}\" in a configuration that trains for a task", c.out);
  const std::string text = fmt::format(fmt::runtime(command), c.out);
  const bool prefixed = writes_targets(c.objective) && !c.data.prefix.empty();
  return prefixed ? fmt::format("{} --prefix \"{}\"", text, c.data.prefix) : text;
}

}  // namespace

std::string summary_text(const RunSetup& run) {
  const TrainConfig& config = run.config;
  const int64_t batch = run.state.batch;
  const std::string ranks = run.ranks == 1 ? "" : counted(run.ranks, "rank") + " of ";
  return fmt::format("{}: {}, {}, vocabulary {}, {} per step, {}, {}, {}{}, {}", config.out,
                     count_parameters(config).text(), run.task->data_text(), config.model.vocab_size,
                     run.task->step_text(batch), steps_text(run), name_of(config.compute()), ranks,
                     counted(num_threads(), "thread"),
                     memory_text(static_cast<double>(memory_plan(config, batch, run.ranks).total())));
}

std::string finished_text(const RunSetup& run, bool out_of_patience) {
  const int64_t done = run.state.step;
  return fmt::format("{} is finished: {} {} done{}; to train on: --resume --set {}", run.config.out,
                     counted(done, "step"), done == 1 ? "is" : "are",
                     out_of_patience ? ", and the last evaluations brought nothing better" : "",
                     out_of_patience ? "train.patience=0" : fmt::format("train.steps={}", 2 * done));
}

std::string done_text(const RunSetup& run, double seconds) {
  const TrainConfig& config = run.config;
  return fmt::format("done: {} in {}; model: {}, report: {}/report.html{}", counted(run.state.step, "step"),
                     duration_text(seconds), resolve_model_dir(config.out), config.out,
                     config.mix.empty() ? "; next: " + next_command(config) : "");
}

std::string divergence_text(const ModelSpec& spec, double loss) {
  const bool tokens = spec.output == Output::tokens,
             classes = (spec.output == Output::sequence_classes && spec.problem == Problem::single_label) ||
                       spec.output == Output::token_classes;
  if (!tokens && !classes) return "";
  const int64_t choices = tokens ? spec.vocab_size : spec.classes();
  // A classifier that is sure of its few mistakes may be right as a rule.
  const double guessing = std::log(static_cast<double>(choices)), far = tokens ? 1.5 : 3;
  if (loss <= far * guessing) return "";
  return fmt::format("; above the loss of guessing, ln({}) = {:.2f}: lower the learning rate", choices,
                     guessing);
}

}  // namespace qkv

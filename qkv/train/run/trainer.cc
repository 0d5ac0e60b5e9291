#include "qkv/train/run/trainer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <sstream>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/machine.h"
#include "qkv/base/parallel.h"
#include "qkv/base/progress.h"
#include "qkv/io/model_dir.h"
#include "qkv/report/metrics_file.h"
#include "qkv/report/report.h"
#include "qkv/train/run/initial_weights.h"
#include "qkv/train/run/plan.h"
#include "qkv/train/run/run_folder.h"
#include "qkv/train/run/run_setup.h"
#include "qkv/train/tasks/baseline.h"
#include "qkv/train/tasks/task.h"

namespace qkv {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// The command that uses what a run has learnt.
std::string next_command(const TrainConfig& c) {
  switch (c.objective) {
    case Objective::next_token:
      return fmt::format("qkv generate {} --prompt \"...\"", c.out);
    case Objective::chat:
      return fmt::format("qkv chat {}", c.out);
    case Objective::masked:
      return fmt::format("echo \"... [MASK] ...\" | qkv fill {}", c.out);
    case Objective::classify:
    case Objective::tag:
      return fmt::format("echo \"...\" | qkv {} {}", name_of(c.objective), c.out);
    case Objective::answer:
      return fmt::format("qkv answer {} --help", c.out);
    case Objective::embed:
      return fmt::format("echo \"...\" | qkv embed {}", c.out);
    case Objective::sequence_to_sequence:
      return fmt::format("echo \"...\" | qkv translate {}{}", c.out,
                         c.data.prefix.empty() ? "" : fmt::format(" --prefix \"{}\"", c.data.prefix));
    case Objective::permutation:
    case Objective::span_corruption:
    case Objective::denoise:
      break;  // a model to begin others with
  }
  return fmt::format("set model.from = \"{}\" in a configuration that trains for a task", c.out);
}

// "1000 steps (58 passes over the data)".
std::string steps_text(const RunSetup& run) {
  constexpr double kMany = 20;  // passes after which most texts are known by heart
  const TrainConfig& config = run.config;
  const std::string out = counted(config.steps, "step");
  const double epoch = run.task->steps_per_epoch(run.state.batch);
  if (epoch <= 0) return out;
  const double passes = static_cast<double>(config.steps) / epoch;
  const bool overfits = config.objective == Objective::next_token && passes >= kMany && config.patience == 0;
  return out + fmt::format(" ({} over the data{})",
                           passes < 9.95 ? fmt::format("{:.2g} passes", passes)
                                         : fmt::format("{} passes", std::llround(passes)),
                           overfits ? ": many for a text; train.patience = 3 stops in time" : "");
}

std::string summary_text(const RunSetup& run) {
  const TrainConfig& config = run.config;
  const int64_t batch = run.state.batch;
  return fmt::format("{}: {}, {}, vocabulary {}, {} a step, {}, {}, {}, {}", config.out,
                     count_parameters(config).text(), run.task->data_text(), config.model.vocab_size,
                     run.task->step_text(batch), steps_text(run), name_of(config.compute()),
                     counted(num_threads(), "thread"),
                     memory_text(static_cast<double>(memory_plan(config, batch).total())));
}

// The first lines for people.
void introduce(const RunSetup& run, Progress& progress) {
  for (const std::string& note : run.task->notes()) progress.note(note);
  progress.note(summary_text(run));
}

// One run: what the loop of train() passes around.
class Run {
 public:
  // Everything up to the first step.
  Run(const TrainConfig& config, StartMode mode) : folder_(config.out), setup_(set_up(config, mode)) {
    std::unique_ptr<Transformer> model = mode == StartMode::resume
                                             ? load_model(folder_.last(), DType::f32)
                                             : initial_model(config_, task_->tokenizer());
    training_ = std::make_unique<TrainingState>(std::move(model), config_.step, config_.compute(),
                                                config_.seed, config_.recompute);
    if (mode == StartMode::resume)
      load_training(folder_.last(), *training_);
    else
      folder_.open(mode);  // only now: a configuration that fails leaves no trace and replaces no run
    write_file_atomically(config_.out + "/config.toml", to_toml(config_));
  }

  Evaluation operator()(const std::function<bool()>& stop) {
    introduce(setup_, progress_);
    const Clock::time_point start = Clock::now();
    const int64_t first = state_.step;
    if (first == config_.steps || out_of_patience()) {
      progress_.note(
          fmt::format("{} is finished: {} {} done{}; to train on: --resume --set {}", config_.out,
                      counted(first, "step"), first == 1 ? "is" : "are",
                      out_of_patience() ? ", and the last evaluations brought nothing better" : "",
                      out_of_patience() ? "train.patience=0" : fmt::format("train.steps={}", 2 * first)));
      return {};
    }
    Metrics metrics(config_.out, state_.step);
    Clock::time_point warm = start;
    bool interrupted = false;
    while (state_.step < config_.steps && !interrupted && !out_of_patience()) {
      const Clock::time_point step_start = Clock::now();
      const StepResult r = step();
      const double seconds = seconds_since(step_start);
      // A mean at first, which then forgets with a half-life of some 14 steps.
      const double newest = std::max(0.05, 1 / static_cast<double>(state_.step));
      state_.smoothed_loss += newest * (r.loss - state_.smoothed_loss);
      tokens_per_second_ = tokens_per_second_ == 0
                               ? static_cast<double>(r.tokens) / seconds
                               : 0.9 * tokens_per_second_ + 0.1 * static_cast<double>(r.tokens) / seconds;
      // The first step also pays for allocations and generated code: it says little about the others.
      if (state_.step == first + 1) warm = Clock::now();
      const int64_t timed = state_.step - first - 1;
      const std::string left = timed == 0 ? "?"
                                          : duration_text(seconds_since(warm) / static_cast<double>(timed) *
                                                          static_cast<double>(config_.steps - state_.step));
      const auto memory = static_cast<double>(memory_use().peak);
      progress_.update({{fmt::format("step {}/{}", state_.step, config_.steps), 6},
                        {fmt::format("loss {:.4f}", r.loss), 4},
                        {fmt::format("smoothed {:.4f}", state_.smoothed_loss), 2},
                        {fmt::format("lr {:.2e}", r.learning_rate), 1},
                        {fmt::format("{} tok/s", human_count(static_cast<int64_t>(tokens_per_second_))), 3},
                        {memory_text(memory), 0},
                        {left + " left", 5}});
      if (state_.step % config_.log_every == 0 || state_.step == config_.steps)
        metrics.write(
            {{"step", state_.step},
             {"loss", r.loss},
             {"smoothed_loss", state_.smoothed_loss},
             {"lr", r.learning_rate},
             {"grad_norm", r.gradient_norm},
             {"tokens_per_second", std::round(tokens_per_second_)},
             {"memory_mb", std::round(memory / 1e6)},
             {"tokens", std::llround(static_cast<double>(state_.step) * task_->tokens_a_step(state_.batch))},
             {"seconds", seconds_since(start)}});
      interrupted = stop && stop();
      const bool last = state_.step == config_.steps;
      if (state_.step % config_.eval_every == 0 && !last) validate(metrics, false);
      if ((state_.step % config_.checkpoint_every == 0 || interrupted) && !last) save();
      if ((state_.step % config_.eval_every == 0 || interrupted) && !last) report();
    }
    if (interrupted && state_.step < config_.steps) {
      progress_.note(fmt::format("stopped after step {}: saved in {}; continue with --resume", state_.step,
                                 folder_.last()));
      return {};
    }
    if (out_of_patience())
      progress_.note(fmt::format("step {}: stopped early: {} brought nothing better", state_.step,
                                 counted(state_.evaluations_since_best, "evaluation")));
    Evaluation e = validate(metrics, true);
    training_->expect_finite(state_.step);
    test_best(metrics);  // before the checkpoint: a run that is killed here is resumed, and judged then
    save();
    report();
    progress_.note(fmt::format(
        "done: {} in {}; the model is in {}, the course of the run in {}/report.html{}",
        counted(state_.step, "step"), duration_text(seconds_since(start)), resolve_model_dir(config_.out),
        config_.out, config_.mix.empty() ? "; next: " + next_command(config_) : ""));
    return e;
  }

 private:
  RunSetup set_up(const TrainConfig& config, StartMode mode) {
    if (mode == StartMode::resume)
      folder_.open(mode);
    else
      folder_.expect_startable(mode);
    return set_up_run(config, mode, folder_, progress_);
  }

  StepResult step() {
    const std::vector<Batch> micro_batches = task_->batches(state_.step + 1, state_.batch);
    try {
      const StepResult r = training_->step(micro_batches, state_.step + 1, config_.steps);
      ++state_.step;
      return r;
    } catch (const Error& e) {
      if (folder_.has_checkpoint()) fail("{}; the last good checkpoint is {}", e.what(), folder_.last());
      throw;
    }
  }

  bool out_of_patience() const {
    return config_.patience > 0 && state_.evaluations_since_best >= config_.patience;
  }

  Evaluation validate(Metrics& metrics, bool all) {
    const TrainingState::Averaged averaged(*training_);
    Evaluation e = task_->evaluate(training_->model(), state_.batch, all);
    if (e.tokens == 0) {  // no validation text, or documents of one token
      if (state_.step == config_.steps && config_.step.ema > 0) save_best();
      return e;
    }
    training_->expect_finite(state_.step);
    check(std::isfinite(e.loss()), "step {}: the validation loss is not finite: lower the learning rate",
          state_.step);
    OrderedJson record = {{"step", state_.step}, {"valid_loss", e.loss()}};
    if (e.characters > 0) {
      record["valid_nats_per_character"] = e.nats_per_character();
      record["valid_bits_per_byte"] = e.bits_per_byte();
    }
    for (const auto& [name, value] : e.losses) record["valid_loss_" + name] = value;
    for (const auto& [name, value] : e.scores) record["valid_" + name] = value;
    record["valid_tokens"] = e.tokens;
    metrics.write(record);
    // The best is found on the same part each time, the last evaluation, of everything, included.
    const double comparable = error_of(
        all && !task_->looks_at_all() ? task_->evaluate(training_->model(), state_.batch, false) : e);
    const bool better = comparable < state_.best_error;
    progress_.note(fmt::format("step {}: validation loss {}{}{}", state_.step, task_->text(e),
                               better ? ", " + progress_.strong("the best so far") : "",
                               divergence_text(e.loss())));
    state_.evaluations_since_best = better ? 0 : state_.evaluations_since_best + 1;
    if (better) {
      state_.best_error = comparable;
      save_best();
      write_evaluation("validation", e);
    }
    write_sample(metrics);
    return e;
  }

  // Warns of a model that predicts tokens or classes far worse than one that gives all of them the same
  // probability.
  std::string divergence_text(double loss) const {
    const Output output = training_->model().spec().output;
    const bool tokens = output == Output::tokens,
               classes = output == Output::sequence_classes || output == Output::token_classes;
    if (!tokens && !classes) return "";
    const int64_t choices = tokens ? config_.model.vocab_size : training_->model().spec().classes();
    // A classifier that is sure of its few mistakes may be right as a rule.
    const double guessing = std::log(static_cast<double>(choices)), far = tokens ? 1.5 : 3;
    if (loss <= far * guessing) return "";
    return fmt::format("; above the loss of guessing, ln({}) = {:.2f}: lower the learning rate", choices,
                       guessing);
  }

  // What the best model has least of: its loss, or what it lacks of a score.
  double error_of(const Evaluation& e) const {
    const std::string name = config_.best_by == "auto" ? task_->best_by() : config_.best_by;
    if (name == "loss") return e.loss();
    for (const auto& [its_name, value] : e.scores)
      if (its_name == name) return 1 - value;
    fail("train.best_by: there is no {} of the objective {}", name, name_of(config_.objective));
  }

  // The best model on the examples that were kept for the end, beside simple methods.
  void test_best(Metrics& metrics) {
    const std::unique_ptr<Transformer> best =
        folder_.has_best() ? load_model(folder_.best(), DType::f32) : nullptr;
    const std::optional<Evaluation> e = task_->test(best ? *best : training_->model());
    std::vector<std::string> others;
    OrderedJson record = {{"step", state_.step}};
    if (e)
      for (const auto& [name, value] : e->scores) record["test_" + name] = value;
    for (const auto& [name, value] : task_->baselines()) {
      others.push_back(fmt::format("{} {:.2f}%", name, 100 * value));
      record[baseline_key(name)] = value;
    }
    if (e) {
      progress_.note(fmt::format("test of the best model: loss {}", task_->text(*e)));
      write_evaluation("test", *e);
    }
    if (!others.empty()) progress_.note(fmt::format("simple methods: {}", fmt::join(others, ", ")));
    if (record.size() > 1) metrics.write(record);
  }

  // OUT/evaluation.json: the scores and what was taken for what, for the report.
  void write_evaluation(const char* of, const Evaluation& e) const {
    if (e.scores.empty()) return;
    OrderedJson out = {{"of", of}, {"step", state_.step}, {"loss", e.loss()}};
    for (const auto& [name, value] : e.scores) out["scores"][name] = value;
    if (e.confusion.classes > 0) {
      out["labels"] = config_.model.labels;
      out["confusion"] = e.confusion.count;
    }
    write_file_atomically(config_.out + "/evaluation.json", out.dump() + "\n");
  }

  void write_sample(Metrics& metrics) {
    if (config_.sample_tokens == 0) return;
    for (const OrderedJson& sample : task_->samples(training_->model())) {
      OrderedJson record = {{"step", state_.step}};
      record.update(sample);
      metrics.write(record);
      if (progress_.terminal())
        progress_.note(
            "  " + shortened(sample.value("prompt", std::string()) + sample.value("sample", std::string())));
    }
  }

  // The begin of a sample in a line that people can read.
  static std::string shortened(std::string text) {
    constexpr size_t kMost = 240;
    std::ranges::replace_if(
        text, [](unsigned char c) { return c < ' ' || c == 0x7F; }, ' ');
    if (text.size() <= kMost) return text;
    size_t end = kMost;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end) + " ...";
  }

  // A page that cannot be written must not end a run.
  void report() {
    try {
      write_report(config_.out);
    } catch (const Error& e) {
      progress_.note(fmt::format("note: no report: {}", e.what()));
    }
  }

  void save_best() { folder_.save_best(training_->model(), model_files_of(setup_, folder_)); }

  void save() {
    training_->expect_finite(state_.step);  // a broken model must not replace a good one
    state_.threads = num_threads();
    folder_.save_last(*training_, model_files_of(setup_, folder_), state_, config_.keep);
  }

  RunFolder folder_;
  Progress progress_;
  RunSetup setup_;
  const TrainConfig& config_ = setup_.config;
  const std::unique_ptr<Task>& task_ = setup_.task;
  TrainerState& state_ = setup_.state;
  std::unique_ptr<TrainingState> training_;
  double tokens_per_second_ = 0;
};

}  // namespace

Evaluation train(const TrainConfig& config, StartMode mode, const std::function<bool()>& stop) {
  check(config.data.folds == 0 || config.data.fold > 0,
        "data.folds: {} models are trained by cross_validate(); train() needs data.fold, the one to train",
        config.data.folds);
  Run run(config, mode);
  return run(stop);
}

void rehearse(const TrainConfig& config, StartMode mode) {
  const RunFolder folder(config.out);
  folder.expect_startable(mode);
  folder.expect_writable();
  Progress progress;
  introduce(set_up_run(config, mode, folder, progress), progress);
}

}  // namespace qkv

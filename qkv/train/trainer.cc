#include "qkv/train/trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <sstream>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/machine.h"
#include "qkv/base/parallel.h"
#include "qkv/base/progress.h"
#include "qkv/data/table.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/baseline.h"
#include "qkv/train/checkpoint.h"
#include "qkv/train/metrics.h"
#include "qkv/train/plan.h"
#include "qkv/train/report.h"
#include "qkv/train/task.h"

namespace qkv {
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Names the first setting in which a checkpoint's fingerprint differs from the one given. One that was not
// known when the checkpoint was made had its default.
void expect_same_run(const std::string& dir, const std::string& saved, const std::string& given) {
  std::vector<std::string> was = lines_of(saved), is;
  for (std::string& line : lines_of(given))
    if (const auto same = std::ranges::find(was, line); same != was.end())
      was.erase(same);
    else
      is.push_back(std::move(line));
  const std::vector<std::string> defaults = lines_of(default_fingerprint());
  const auto key_of = [](const std::string& line) { return line.substr(0, line.find(" = ")); };
  for (const std::string& line : is) {
    const auto before = std::ranges::find(was, key_of(line), key_of);
    check(before == was.end(),
          "{}: the checkpoint was made with '{}', the configuration says '{}': a run can only be resumed "
          "unchanged",
          dir, before == was.end() ? "" : *before, line);
    std::string of_any_set = line;
    if (line.starts_with("mix."))
      if (const size_t dot = line.find('.', 4); dot < line.find(" = "))
        of_any_set.replace(4, dot - 4, "NAME");
    check(std::ranges::find(defaults, of_any_set) != defaults.end(),
          "{}: the checkpoint was made without '{}': a run can only be resumed unchanged", dir, line);
  }
  check(was.empty(), "{}: the checkpoint was made with '{}': a run can only be resumed unchanged", dir,
        was.empty() ? "" : was.front());
}

// The folder of a run and the checkpoints in it.
class RunFolder {
 public:
  explicit RunFolder(const std::string& path) : path_(path) {}

  std::string last() const { return path_ + "/last"; }
  std::string best() const { return path_ + "/best"; }
  bool has_checkpoint() const { return file_exists(last() + "/trainer_state.json"); }
  bool has_run() const { return has_checkpoint() || file_exists(best()); }

  void expect_startable(StartMode mode) const {
    if (mode == StartMode::fresh)
      check(!has_run(), "{} holds a run already: {}replace it with --overwrite, or choose another train.out",
            path_, has_checkpoint() ? "continue it with --resume, " : "");
    if (mode == StartMode::resume)
      check(has_checkpoint(), "{}: there is no checkpoint to resume from", last());
  }

  // Makes the folder this process's own, without what an interrupted one left half written.
  void open(StartMode mode) {
    std::error_code error;
    if (mode == StartMode::resume && !fs::exists(path_, error)) expect_startable(mode);
    fs::create_directories(path_, error);
    check(!error, "{}: cannot be created: {}", path_, error.message());
    lock_.emplace(path_);
    for (const std::string& d : {last(), best()}) recover_interrupted_write(d);
    remove_half_written();
    expect_startable(mode);  // now nothing can change it
    if (mode != StartMode::overwrite) return;
    fs::remove_all(last());
    fs::remove_all(best());
    fs::remove(path_ + "/evaluation.json");  // which another kind of run would not replace
    for (const auto& [step, older] : older_checkpoints(path_)) fs::remove_all(older);
  }

  // Throws Error where nothing can be written below the folder's nearest existing parent.
  void expect_writable() const {
    fs::path existing = fs::absolute(path_);
    while (!fs::exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
    check(fs::is_directory(existing), "{}: cannot be created: {} is not a directory", path_,
          existing.string());
    check(::access(existing.c_str(), W_OK) == 0, "{}: {} cannot be written", path_, existing.string());
  }

  // Keeps the checkpoint of `step` in last/ under its own name, as links to its files, and of the older ones
  // as many as make `keep` with the one about to be written.
  void retire_last(int64_t step, int64_t keep) const {
    if (keep > 1 && has_checkpoint())
      write_directory_atomically(fmt::format("{}/step-{}", path_, step), [&](const std::string& to) {
        for (const auto& file : fs::directory_iterator(last())) {
          const fs::path target = to / file.path().filename();
          std::error_code error;
          fs::create_hard_link(file.path(), target, error);
          if (error) fs::copy_file(file.path(), target);  // a file system without links
        }
      });
    auto older = older_checkpoints(path_);
    for (int64_t surplus = static_cast<int64_t>(older.size()) - (keep - 1); surplus > 0; --surplus) {
      fs::remove_all(older.begin()->second);
      older.erase(older.begin());
    }
  }

 private:
  void remove_half_written() const {
    for (const auto& entry : fs::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("step-") && name.ends_with(".tmp")) fs::remove_all(entry.path());
    }
  }

  std::string path_;
  std::optional<FolderLock> lock_;
};

// One run: what the loop of train() passes around.
class Run {
 public:
  // Everything up to the first step; with `rehearsal` nothing is written and no weight allocated.
  Run(const TrainConfig& config, StartMode mode, bool rehearsal)
      : config_(config), folder_(config.out), task_(prepare_task(mode, rehearsal)) {
    if (config_.from.empty()) {
      const text::Tokenizer& tokenizer = task_->tokenizer();
      config_.model.vocab_size = static_cast<int64_t>(tokenizer.vocab_size());
      if (tokenizer.has_own_sources())
        config_.model.source_vocab_size = static_cast<int64_t>(tokenizer.of_sources().vocab_size());
    }
    config_.model.labels = task_->labels();
    if (config_.model.lora.any()) config_.model.lora.adapters = adapters_of(config_.model);
    state_.fingerprint = fingerprint(config_) + fmt::format("compute = {}\n", name_of(config_.compute())) +
                         task_->fingerprint();
    if (mode == StartMode::resume) {
      const TrainerState saved = load_trainer_state(folder_.last());
      expect_same_run(folder_.last(), saved.fingerprint, state_.fingerprint);
      if (saved.threads != num_threads())
        progress_.note(fmt::format(
            "note: the checkpoint was made with {} threads, this run has {}: the last bits may differ",
            saved.threads, num_threads()));
      state_ = saved;
    }
    settle_batch(mode);
    task_->expect_batch(state_.batch);
    if (rehearsal) return;

    std::unique_ptr<Transformer> model = mode == StartMode::resume
                                             ? load_model(folder_.last(), DType::f32)
                                             : std::make_unique<Transformer>(config_.model);
    if (mode != StartMode::resume && !config_.from.empty()) begin_with(*model);
    training_ = std::make_unique<TrainingState>(std::move(model), config_.step, config_.compute(),
                                                config_.seed, config_.recompute);
    if (mode == StartMode::resume)
      load_training(folder_.last(), *training_);
    else
      folder_.open(mode);  // only now: a configuration that fails leaves no trace and replaces no run
    write_file_atomically(config_.out + "/config.toml", to_toml(config_));
  }

  // The first lines for people.
  void introduce() {
    for (const std::string& note : task_->notes()) progress_.note(note);
    progress_.note(summary());
  }

  std::string summary() const {
    return fmt::format("{}: {} parameters, {}, vocabulary {}, {} a step, {}, {} threads, {}", config_.out,
                       human_count(Transformer(config_.model).parameters().count()), task_->data_text(),
                       config_.model.vocab_size, task_->step_text(state_.batch), name_of(config_.compute()),
                       num_threads(),
                       memory_text(static_cast<double>(memory_plan(config_, state_.batch).total())));
  }

  Evaluation operator()(const std::function<bool()>& stop) {
    introduce();
    const Clock::time_point start = Clock::now();
    const int64_t first = state_.step;
    if (first == config_.steps || out_of_patience()) {
      progress_.note(
          fmt::format("{} is finished: {} steps are done{}", config_.out, first,
                      out_of_patience() ? ", and the last evaluations brought nothing better" : ""));
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
      progress_.update(
          fmt::format("step {}/{}  loss {:.4f}  smoothed {:.4f}  lr {:.2e}  {} tok/s  {}  {} left",
                      state_.step, config_.steps, r.loss, state_.smoothed_loss, r.learning_rate,
                      human_count(static_cast<int64_t>(tokens_per_second_)), memory_text(memory), left));
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
      progress_.note(fmt::format("step {}: stopped early: {} evaluations brought nothing better", state_.step,
                                 state_.evaluations_since_best));
    Evaluation e = validate(metrics, true);
    training_->expect_finite(state_.step);
    judge(metrics);  // before the checkpoint: a run that is killed here is resumed, and judged then
    save();
    report();
    progress_.note(fmt::format(
        "done: {} steps in {}; the model is in {}, the course of the run in {}/report.html", state_.step,
        duration_text(seconds_since(start)), resolve_model_dir(config_.out), config_.out));
    return e;
  }

 private:
  std::unique_ptr<Task> prepare_task(StartMode mode, bool rehearsal) {
    if (mode == StartMode::resume && !rehearsal)
      folder_.open(mode);
    else
      folder_.expect_startable(mode);
    if (rehearsal) folder_.expect_writable();
    if (mode != StartMode::resume) return make_task(config_, nullptr);
    const Origin last = Origin::at(folder_.last());
    return make_task(config_, &last);
  }

  // Refuses a run that the memory does not hold, before it takes any.
  void settle_batch(StartMode mode) {
    const int64_t limit = memory_limit(config_);
    const bool fit = config_.batch == 0;
    if (mode != StartMode::resume || !fit) state_.batch = config_.batch;
    if (fit && mode != StartMode::resume)
      state_.batch =
          std::clamp<int64_t>(largest_batch(config_, limit), 1, std::max<int64_t>(1, task_->largest_batch()));
    const int64_t needed = memory_plan(config_, state_.batch).total();
    if (needed <= limit) return;
    if (config_.objective != Objective::next_token)
      fail("micro-batches of {} tokens need {}, but {} {}: lower train.batch_tokens", config_.batch_tokens,
           memory_text(static_cast<double>(needed)), memory_text(static_cast<double>(limit)),
           config_.memory_gb > 0 ? "are allowed (train.memory_gb)" : "are free");
    const int64_t fits = largest_batch(config_, limit);
    TrainConfig frugal = config_;
    frugal.recompute = true;
    const bool recompute_helps = !config_.recompute && largest_batch(frugal, limit) > fits;
    fail("{} windows of {} tokens need {}, but {} {}: {}{}", state_.batch, config_.window_length(),
         memory_text(static_cast<double>(needed)), memory_text(static_cast<double>(limit)),
         config_.memory_gb > 0 ? "are allowed (train.memory_gb)" : "are free",
         fits > 0 ? fmt::format("set train.batch = {}", fits) : std::string("choose a smaller model"),
         recompute_helps ? ", or train.recompute = true" : "");
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
                               better ? ", the best so far" : "", divergence_text(e.loss())));
    state_.evaluations_since_best = better ? 0 : state_.evaluations_since_best + 1;
    if (better) {
      state_.best_error = comparable;
      save_best();
      write_evaluation("validation", e);
    }
    write_sample(metrics);
    return e;
  }

  // Warns of a model that predicts tokens far worse than one that gives all of them the same probability.
  std::string divergence_text(double loss) const {
    constexpr double kFar = 1.5;
    const auto vocabulary = static_cast<double>(config_.model.vocab_size);
    if (config_.model.output != Output::tokens || loss <= kFar * std::log(vocabulary)) return "";
    return fmt::format("; above the loss of guessing, ln({}) = {:.2f}: lower the learning rate",
                       config_.model.vocab_size, std::log(vocabulary));
  }

  // What the best model has least of: its loss, or what it lacks of a score.
  double error_of(const Evaluation& e) const {
    const std::string name = config_.best_by == "auto" ? task_->best_by() : config_.best_by;
    if (name == "loss") return e.loss();
    for (const auto& [its_name, value] : e.scores)
      if (its_name == name) return 1 - value;
    fail("train.best_by: there is no {} of the objective {}", name, name_of(config_.objective));
  }

  // Weights of another model, for the parameters that both have; of the classifier where it has these
  // classes.
  void begin_with(Transformer& model) const {
    const std::string dir = resolve_model_dir(config_.from);
    const std::unique_ptr<Transformer> other = load_model(dir, DType::f32);
    const ModelSpec &a = model.spec(), &b = other->spec();
    const bool same_classes = a.output == b.output && a.labels == b.labels;
    if (same_classes && family_for(a).model_type == family_for(b).model_type) {
      model.parameters().kept = other->parameters().kept;
      model.parameters().kept_rows = other->parameters().kept_rows;
    }
    for (Parameter& p : model.parameters().all())
      if (const Parameter* q = other->parameters().find(p.name);
          q != nullptr && q->shape == p.shape && (same_classes || !p.name.starts_with("classifier."))) {
        // Frozen, it may lie in the mapped file.
        p.frozen = model.spec().lora.any();
        p.value = p.frozen ? q->value : q->value.clone();
      }
  }

  // The best model on the examples that were kept for the end, beside simple methods.
  void judge(Metrics& metrics) {
    const bool has_best = file_exists(folder_.best() + "/config.json");
    const std::unique_ptr<Transformer> best = has_best ? load_model(folder_.best(), DType::f32) : nullptr;
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

  void write_sample(Metrics& metrics) const {
    if (config_.sample_tokens == 0) return;
    for (const OrderedJson& sample : task_->samples(training_->model())) {
      OrderedJson record = {{"step", state_.step}};
      record.update(sample);
      metrics.write(record);
    }
  }

  // A page that cannot be written must not end a run.
  void report() {
    try {
      write_report(config_.out);
    } catch (const Error& e) {
      progress_.note(fmt::format("note: no report: {}", e.what()));
    }
  }

  // What stands beside the weights: as in the model that the run began with, but for what this one says of
  // it.
  ModelFiles model_files() const {
    ModelFiles files{task_->tokenizer(), special_ids_of(task_->tokenizer(), config_.model)};
    files.chat_template = task_->chat_template();
    // A run's first checkpoint has what its later ones need.
    if (folder_.has_checkpoint())
      files.companions_of = folder_.last();
    else if (!config_.from.empty())
      files.companions_of = resolve_model_dir(config_.from);
    if (!files.companions_of.empty()) {
      SpecialIds before = load_special_ids(files.companions_of);
      files.ids.pad = before.pad;
      bool pairs = writes_targets(config_.objective);
      for (const MixedSet& set : config_.mix) pairs |= writes_targets(set.objective);
      if (!before.eos.empty() && (before.decoder_start >= 0 || !pairs)) files.ids = std::move(before);
    }
    for (const int64_t id : task_->ends())
      if (std::find(files.ids.eos.begin(), files.ids.eos.end(), id) == files.ids.eos.end())
        files.ids.eos.push_back(id);
    if (files.ids.pad < 0 && config_.model.output == Output::sequence_classes &&
        config_.model.architecture == Architecture::decoder)
      files.ids.pad = padding_of(task_->tokenizer(), files.ids);
    return files;
  }

  void save_best() { save_model_dir(folder_.best(), training_->model(), model_files()); }

  void save() {
    training_->expect_finite(state_.step);  // a broken model must not replace a good one
    state_.threads = num_threads();
    if (folder_.has_checkpoint())
      if (const int64_t step = load_trainer_state(folder_.last()).step; step != state_.step)
        folder_.retire_last(step, config_.keep);
    save_checkpoint(folder_.last(), *training_, model_files(), state_);
  }

  TrainConfig config_;
  RunFolder folder_;
  Progress progress_;
  std::unique_ptr<Task> task_;
  TrainerState state_;
  std::unique_ptr<TrainingState> training_;
  double tokens_per_second_ = 0;
};

}  // namespace

Evaluation train(const TrainConfig& config, StartMode mode, const std::function<bool()>& stop) {
  Run run(config, mode, false);
  return run(stop);
}

void rehearse(const TrainConfig& config, StartMode mode) {
  Run(config, mode, true).introduce();
}

}  // namespace qkv

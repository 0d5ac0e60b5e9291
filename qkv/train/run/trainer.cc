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
#include "qkv/data/table.h"
#include "qkv/io/model_dir.h"
#include "qkv/report/metrics_file.h"
#include "qkv/report/report.h"
#include "qkv/train/run/checkpoint.h"
#include "qkv/train/run/new_tokens.h"
#include "qkv/train/run/plan.h"
#include "qkv/train/run/run_folder.h"
#include "qkv/train/tasks/baseline.h"
#include "qkv/train/tasks/task.h"

namespace qkv {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Keys that may differ from those of the checkpoint: they say how far a run goes and how often it looks at
// itself.
constexpr std::string_view kMayChange[] = {"train.steps", "train.eval_every", "train.patience"};

std::string key_of(const std::string& line) {
  return line.substr(0, line.find(" = "));
}
std::string value_of(const std::string& line) {
  const size_t at = line.find(" = ");
  return at == std::string::npos ? "" : line.substr(at + 3);
}

// Two lines of a fingerprint with one key, "training tokens = 100 (0ba9...)", for people.
std::string data_change(const std::string& before, const std::string& now) {
  const auto count = [](const std::string& line) {
    const std::string value = value_of(line);
    return value.substr(0, value.find(" ("));
  };
  const std::string key = key_of(before);
  const size_t colon = key.find(": ");  // the name of a data set comes first
  const std::string set = colon == std::string::npos ? "" : key.substr(0, colon + 2),
                    what = colon == std::string::npos ? key : key.substr(colon + 2);
  const bool tokens = what.ends_with(" tokens");
  const std::string text =
      tokens ? what.substr(0, what.size() - std::string_view("tokens").size()) + "text has" : what + " have";
  const std::string unit = tokens ? "tokens" : what;
  const std::string difference = count(before) == count(now)
                                     ? fmt::format("{} {} as before, but others", count(now), what)
                                     : fmt::format("{} {} then, {} now", count(before), unit, count(now));
  return fmt::format("{}the {} changed since the checkpoint ({})", set, text, difference);
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
  for (const std::string& line : is) {
    const std::string key = key_of(line);
    const auto before = std::ranges::find(was, key, key_of);
    if (before != was.end()) {
      if (std::ranges::find(kMayChange, key) != std::end(kMayChange)) {
        was.erase(before);
        continue;
      }
      if (line.ends_with(')')) fail("{}: {}", dir, data_change(*before, line));
      fail(
          "{}: the checkpoint was made with '{}', the configuration says '{}': a resumed run may change only "
          "steps, eval_every, patience and what is saved and logged; for another run set model.from",
          dir, *before, line);
    }
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

// The number that a fingerprint has at this key; `otherwise` where it lacks it.
int64_t number_in(const std::string& fingerprint, std::string_view key, int64_t otherwise) {
  for (const std::string& line : lines_of(fingerprint))
    if (key_of(line) == key) return std::stoll(value_of(line));
  return otherwise;
}

// Whether the schedule's rates depend on how many steps there are.
bool depends_on_steps(const ScheduleConfig& s) {
  return s.name != "constant" && s.name != "inverse_sqrt";
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

// One run: what the loop of train() passes around.
class Run {
 public:
  // Everything up to the first step; with `rehearsal` nothing is written and no weight allocated.
  Run(const TrainConfig& config, StartMode mode, bool rehearsal)
      : config_(config), folder_(config.out), task_(prepare_task(mode, rehearsal)) {
    complete_model(config_, *task_);
    if (mode == StartMode::resume) go_on_from(load_trainer_state(folder_.last()));
    resolve_batch(mode);
    task_->expect_batch(state_.batch);
    if (mode != StartMode::resume) {
      find_steps(config_, *task_, state_.batch);
      state_.fingerprint = run_fingerprint();
    }
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
    return fmt::format("{}: {}, {}, vocabulary {}, {} a step, {}, {}, {}, {}", config_.out,
                       count_parameters(config_).text(), task_->data_text(), config_.model.vocab_size,
                       task_->step_text(state_.batch), steps_text(), name_of(config_.compute()),
                       counted(num_threads(), "thread"),
                       memory_text(static_cast<double>(memory_plan(config_, state_.batch).total())));
  }

  Evaluation operator()(const std::function<bool()>& stop) {
    introduce();
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
  // "1000 steps (58 passes over the data)".
  std::string steps_text() const {
    constexpr double kMany = 20;  // passes after which most texts are known by heart
    std::string out = counted(config_.steps, "step");
    const double epoch = task_->steps_per_epoch(state_.batch);
    if (epoch <= 0) return out;
    const double passes = static_cast<double>(config_.steps) / epoch;
    const bool text = config_.objective == Objective::next_token;
    return out + fmt::format(" ({} over the data{})",
                             passes < 9.95 ? fmt::format("{:.2g} passes", passes)
                                           : fmt::format("{} passes", std::llround(passes)),
                             text && passes >= kMany && config_.patience == 0
                                 ? ": many for a text; train.patience = 3 stops in time"
                                 : "");
  }

  std::string run_fingerprint() const {
    return fingerprint(config_) + fmt::format("compute = {}\n", name_of(config_.compute())) +
           task_->fingerprint();
  }

  // Takes the state of a checkpoint. Throws Error where it is another run's.
  void go_on_from(const TrainerState& saved) {
    const int64_t batch = config_.batch == 0 ? saved.batch : config_.batch;
    find_steps(config_, *task_, batch);
    const int64_t before = number_in(saved.fingerprint, "train.steps", config_.steps);
    if (config_.warmup_derived) {  // it is over, or goes on as it began
      ScheduleConfig& s = config_.step.schedule;
      s.warmup_steps = number_in(saved.fingerprint, "train.warmup_steps", s.warmup_steps);
      config_.warmup_derived = false;
    }
    const std::string now = run_fingerprint();
    expect_same_run(folder_.last(), saved.fingerprint, now);
    check(config_.steps > saved.step || config_.steps == before,
          "{}: {} are done already: train.steps = {} leaves none", folder_.last(),
          counted(saved.step, "step"), config_.steps);
    if (saved.threads != num_threads())
      progress_.note(
          fmt::format("note: the checkpoint was made with {}, this run has {}: the last bits may differ",
                      counted(saved.threads, "thread"), num_threads()));
    state_ = saved;
    if (before == config_.steps) return;
    state_.fingerprint = now;
    progress_.note(fmt::format("{}: step {} of {} now, of {} before: {}", config_.out, saved.step,
                               config_.steps, before, schedule_text(before)));
  }

  // What becomes of the learning rate where a run is continued to another number of steps than `before`.
  std::string schedule_text(int64_t before) const {
    const ScheduleConfig& s = config_.step.schedule;
    if (!depends_on_steps(s)) return fmt::format("the schedule ({}) goes on as it is", s.name);
    const auto at = [&](int64_t step, int64_t steps) {
      return learning_rate_at(s, std::clamp<int64_t>(step, 1, steps), steps);
    };
    return fmt::format(
        "the schedule ({}) is stretched over {} steps: the learning rate was {:.2e}, goes on at {:.2e} and "
        "ends at {:.2e}",
        s.name, config_.steps, at(state_.step, before), at(state_.step + 1, config_.steps),
        at(config_.steps, config_.steps));
  }

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
  void resolve_batch(StartMode mode) {
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
    const bool adds = !config_.tokenizer.add_special.empty();
    const NewTokens added{
        .known = adds ? static_cast<int64_t>(text::Tokenizer::load(dir).vocab_size()) : b.vocab_size,
        .all = static_cast<int64_t>(task_->tokenizer().vocab_size()),
        .seed = config_.seed};
    for (Parameter& p : model.parameters().all())
      if (const Parameter* q = other->parameters().find(p.name); q == nullptr) {
        continue;
      } else if (adds && is_of_vocabulary(p, *q)) {
        p.value = added.rows(q->value, p.shape);
      } else if (q->shape == p.shape && (same_classes || !p.name.starts_with("classifier."))) {
        // Frozen, it may lie in the mapped file.
        p.frozen = model.spec().lora.any();
        p.value = p.frozen ? q->value : q->value.clone();
      }
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

  // What stands beside the weights: as in the model that the run began with, but for what this one says of
  // it.
  ModelFiles model_files() const {
    ModelFiles files{task_->tokenizer(), special_ids_of(task_->tokenizer(), config_.model)};
    files.chat_template = task_->chat_template();
    // A run's first checkpoint has what its later ones need.
    if (folder_.has_checkpoint())
      files.auxiliary_files_of = folder_.last();
    else if (!config_.from.empty())
      files.auxiliary_files_of = resolve_model_dir(config_.from);
    if (!files.auxiliary_files_of.empty()) {
      SpecialIds before = load_special_ids(files.auxiliary_files_of);
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

  void save_best() { folder_.save_best(training_->model(), model_files()); }

  void save() {
    training_->expect_finite(state_.step);  // a broken model must not replace a good one
    state_.threads = num_threads();
    folder_.save_last(*training_, model_files(), state_, config_.keep);
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
  check(config.data.folds == 0 || config.data.fold > 0,
        "data.folds: {} models are trained by cross_validate(); train() needs data.fold, the one to train",
        config.data.folds);
  Run run(config, mode, false);
  return run(stop);
}

void rehearse(const TrainConfig& config, StartMode mode) {
  Run(config, mode, true).introduce();
}

}  // namespace qkv

#include "qkv/train/trainer.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/parallel.h"
#include "qkv/base/progress.h"
#include "qkv/io/model_dir.h"
#include "qkv/kernels/kernels.h"
#include "qkv/train/checkpoint.h"

namespace qkv {

TrainingState::TrainingState(std::unique_ptr<Decoder> model, const OptimizerConfig& config, DType compute,
                             uint64_t seed, bool recompute)
    : model_(std::move(model)), config_(config), seed_(seed) {
  model_->parameters().prepare_training(compute, seed);
  model_->set_recompute(recompute);
  optimizer_ = make_optimizer(config, model_->parameters());
}

StepResult TrainingState::step(const std::vector<Batch>& micro_batches, int64_t step, int64_t steps) {
  Parameters& parameters = model_->parameters();
  int64_t targets = 0;
  for (const Batch& b : micro_batches) targets += b.target_count;
  check(targets > 0, "step {}: the batch has no token to predict", step);
  parameters.reset_gradients();
  StepResult result;
  int64_t first_row = 0;
  for (const Batch& b : micro_batches) {
    Context context;
    context.layout = b.layout;
    context.training = true;
    context.seed = seed_;
    context.step = static_cast<uint64_t>(step);
    context.first_row = first_row;
    const CrossEntropyResult r = model_->loss(b.ids, b.targets, context, 1 / static_cast<float>(targets));
    result.loss += r.total / static_cast<double>(targets);
    check(std::isfinite(r.total), "step {}: the loss is not finite ({}): lower the learning rate", step,
          r.total);
    backward(r.loss);
    first_row += b.layout.rows();
    result.tokens += b.layout.rows();
  }
  parameters.complete_gradients();
  result.gradient_norm = gradient_norm(parameters);
  if (!std::isfinite(result.gradient_norm)) {
    for (const Parameter& p : parameters.all())
      for (const float g : p.leaf->grad.values<float>())
        check(std::isfinite(g), "step {}: the gradient of {} is not finite: lower the learning rate", step,
              p.name);
    fail("step {}: the gradient's norm overflows: lower the learning rate", step);
  }
  result.learning_rate = learning_rate_at(config_, step, steps);
  const double scale =
      config_.clip > 0 && result.gradient_norm > config_.clip ? config_.clip / result.gradient_norm : 1;
  optimizer_->update(parameters, step, result.learning_rate, scale);
  return result;
}

void TrainingState::expect_finite(int64_t step) {
  for (const Parameter& p : model_->parameters().all())
    check(std::isfinite(kernels().sum_squares(p.master.count(), p.master.data<float>())),
          "step {}: {} is not finite any more: lower the learning rate", step, p.name);
}

std::string resolve_model_dir(const std::string& dir) {
  for (const std::string& candidate : {dir, dir + "/best", dir + "/last"})
    if (file_exists(candidate + "/config.json")) return candidate;
  check(std::filesystem::is_directory(dir), "{}: no such directory (expected a model directory or a run)",
        dir);
  fail("{}: holds no model: expected config.json here, in best/ or in last/", dir);
}

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// metrics.jsonl: one JSON object a line.
class Metrics {
 public:
  // Keeps what was written up to `step`: steps after the checkpoint will be done again.
  Metrics(const std::string& path, int64_t step) : path_(path) {
    std::string kept;
    if (step > 0 && file_exists(path)) {
      std::istringstream lines(read_file(path));
      for (std::string line; std::getline(lines, line);) {
        const auto json = Json::parse(line, nullptr, false);
        if (json.is_object() && json.contains("step") && json["step"].is_number_integer() &&
            json["step"].get<int64_t>() <= step)
          kept += line + "\n";
      }
    }
    write_file_atomically(path, kept);
    out_.open(path, std::ios::app);
    check(out_.good(), "{}: cannot be written", path);
  }
  void write(const OrderedJson& line) {
    out_ << line.dump() << std::endl;
    check(out_.good(), "{}: cannot be written", path_);
  }

 private:
  std::string path_;
  std::ofstream out_;
};

// Names the first setting in which a checkpoint's configuration differs from the one given.
void expect_same_run(const std::string& dir, const std::string& saved, const std::string& given) {
  std::istringstream a(saved), b(given);
  for (std::string was, is; std::getline(a, was) && std::getline(b, is);)
    check(was == is,
          "{}: the checkpoint was made with '{}', the configuration says '{}': a run can only be resumed "
          "unchanged",
          dir, was, is);
  check(saved == given, "{}: the checkpoint was made with another configuration", dir);
}

// Tells two texts apart (FNV-1a over the tokens).
std::string digest(const TokenStream& stream) {
  uint64_t h = 14695981039346656037u;
  for (const int32_t t : stream.tokens) h = (h ^ static_cast<uint32_t>(t)) * 1099511628211u;
  return fmt::format("{} ({:016x})", stream.size(), h);
}

std::string human_count(int64_t n) {
  if (n >= 10'000'000) return fmt::format("{:.0f}M", static_cast<double>(n) / 1e6);
  if (n >= 1'000'000) return fmt::format("{:.1f}M", static_cast<double>(n) / 1e6);
  return n >= 10'000 ? fmt::format("{:.0f}k", static_cast<double>(n) / 1e3) : std::to_string(n);
}

// One run: what the loop of train() passes around.
class Run {
 public:
  Run(const TrainConfig& config, StartMode mode)
      : config_(config),
        last_(config.out + "/last"),
        best_(config.out + "/best"),
        corpus_(prepare_corpus(mode)),
        windows_(corpus_.train, config.model.context, config.seed,
                 fmt::format("{}", fmt::join(config.data.train, ", "))) {
    config_.model.vocab_size = static_cast<int64_t>(corpus_.tokenizer.vocab_size());
    const bool bf16 = config.precision == "bf16" || (config.precision == "auto" && bf16_is_fast());
    state_.fingerprint = fingerprint(config_) +
                         fmt::format("compute = {}\ntraining tokens = {}\nvalidation tokens = {}\n",
                                     bf16 ? "bf16" : "f32", digest(corpus_.train), digest(corpus_.valid));
    std::unique_ptr<Decoder> model;
    if (mode == StartMode::resume) {
      const TrainerState saved = load_trainer_state(last_);
      expect_same_run(last_, saved.fingerprint, state_.fingerprint);
      if (saved.threads != num_threads())
        progress_.note(fmt::format(
            "note: the checkpoint was made with {} threads, this run has {}: the last bits may differ",
            saved.threads, num_threads()));
      state_ = saved;
      model = load_model(last_, DType::f32);
    } else {
      model = std::make_unique<Decoder>(config_.model);
    }
    training_ =
        std::make_unique<TrainingState>(std::move(model), config_.optimizer, bf16 ? DType::bf16 : DType::f32,
                                        config_.seed, config_.recompute);
    if (mode == StartMode::resume)
      load_optimizer(last_, training_->optimizer());
    else
      prepare_output(mode);
    progress_.note(fmt::format(
        "{}: {} parameters, {} training and {} validation tokens, vocabulary {}, {}, {} threads", config_.out,
        human_count(training_->model().parameters().count()), human_count(corpus_.train.size()),
        human_count(corpus_.valid.size()), config_.model.vocab_size, bf16 ? "bf16" : "f32", num_threads()));
  }

  Evaluation operator()(const std::function<bool()>& stop) {
    Metrics metrics(config_.out + "/metrics.jsonl", state_.step);
    const Clock::time_point start = Clock::now();
    const int64_t first = state_.step;
    if (first == config_.steps) {
      progress_.note(fmt::format("{} is finished: all {} steps are done", config_.out, first));
      return {};
    }
    Clock::time_point warm = start;
    bool interrupted = false;
    while (state_.step < config_.steps && !interrupted) {
      const Clock::time_point step_start = Clock::now();
      const StepResult r = step();
      const double seconds = seconds_since(step_start);
      state_.smoothed_loss = state_.step == 1 ? r.loss : 0.95 * state_.smoothed_loss + 0.05 * r.loss;
      tokens_per_second_ = tokens_per_second_ == 0
                               ? static_cast<double>(r.tokens) / seconds
                               : 0.9 * tokens_per_second_ + 0.1 * static_cast<double>(r.tokens) / seconds;
      // The first step also pays for allocations and generated code: it says little about the others.
      if (state_.step == first + 1) warm = Clock::now();
      const int64_t timed = state_.step - first - 1;
      const std::string left = timed == 0 ? "?"
                                          : duration_text(seconds_since(warm) / static_cast<double>(timed) *
                                                          static_cast<double>(config_.steps - state_.step));
      progress_.update(
          fmt::format("step {}/{}  loss {:.4f}  smoothed {:.4f}  lr {:.2e}  {} tok/s  {:.0f} MB  {} left",
                      state_.step, config_.steps, r.loss, state_.smoothed_loss, r.learning_rate,
                      human_count(static_cast<int64_t>(tokens_per_second_)),
                      static_cast<double>(memory_use().peak) / 1e6, left));
      if (state_.step % config_.log_every == 0 || state_.step == config_.steps)
        metrics.write({{"step", state_.step},
                       {"loss", r.loss},
                       {"smoothed_loss", state_.smoothed_loss},
                       {"lr", r.learning_rate},
                       {"grad_norm", r.gradient_norm},
                       {"tokens_per_second", std::round(tokens_per_second_)},
                       {"seconds", seconds_since(start)}});
      interrupted = stop && stop();
      const bool last = state_.step == config_.steps;
      if (state_.step % config_.eval_every == 0 && !last) validate(metrics, config_.eval_windows);
      if ((state_.step % config_.checkpoint_every == 0 || interrupted) && !last) save();
    }
    if (interrupted && state_.step < config_.steps) {
      progress_.note(
          fmt::format("stopped after step {}: saved in {}; continue with --resume", state_.step, last_));
      return {};
    }
    const Evaluation e = validate(metrics, 0);
    save();
    progress_.note(fmt::format("done: {} steps in {}; the model is in {}", config_.steps,
                               duration_text(seconds_since(start)), resolve_model_dir(config_.out)));
    return e;
  }

 private:
  Corpus prepare_corpus(StartMode mode) {
    const bool exists = file_exists(last_ + "/trainer_state.json");
    if (mode == StartMode::fresh)
      check(!exists && !file_exists(best_),
            "{} holds a run already: {}replace it with --overwrite, or choose another train.out", config_.out,
            exists ? "continue it with --resume, " : "");
    if (mode == StartMode::resume) {
      check(exists, "{}: there is no checkpoint to resume from", last_);
      const auto tokenizer = text::Tokenizer::load(last_);
      return load_corpus(config_.data, config_.tokenizer, &tokenizer);
    }
    Corpus corpus = load_corpus(config_.data, config_.tokenizer);
    return corpus;
  }

  // Only when all else is ready: a configuration that fails leaves no trace and replaces no run.
  void prepare_output(StartMode mode) {
    if (mode == StartMode::overwrite) {
      std::filesystem::remove_all(last_);
      std::filesystem::remove_all(best_);
    }
    std::error_code error;
    std::filesystem::create_directories(config_.out, error);
    check(!error, "{}: cannot be created: {}", config_.out, error.message());
    write_file_atomically(config_.out + "/config.toml", to_toml(config_));
  }

  StepResult step() {
    std::vector<Batch> micro_batches;
    for (int64_t i = 0; i < config_.accumulate; ++i)
      micro_batches.push_back(
          windows_.batch(static_cast<uint64_t>(state_.step + 1), i * config_.batch, config_.batch));
    try {
      const StepResult r = training_->step(micro_batches, state_.step + 1, config_.steps);
      ++state_.step;
      return r;
    } catch (const Error& e) {
      if (file_exists(last_ + "/trainer_state.json"))
        fail("{}; the last good checkpoint is {}", e.what(), last_);
      throw;
    }
  }

  Evaluation validate(Metrics& metrics, int64_t windows) {
    if (corpus_.valid.size() < 2) return {};
    const Evaluation e = evaluate(training_->model(), corpus_.valid, config_.batch, windows);
    if (e.tokens == 0) return e;  // documents of one token
    training_->expect_finite(state_.step);
    check(std::isfinite(e.loss()), "step {}: the validation loss is not finite: lower the learning rate",
          state_.step);
    metrics.write({{"step", state_.step},
                   {"valid_loss", e.loss()},
                   {"valid_nats_per_character", e.nats_per_character()},
                   {"valid_bits_per_byte", e.bits_per_byte()},
                   {"valid_tokens", e.tokens}});
    const bool better = e.loss() < state_.best_loss;
    progress_.note(fmt::format(
        "step {}: validation loss {:.4f} ({:.4f} nats a character, {:.4f} bits a byte){}", state_.step,
        e.loss(), e.nats_per_character(), e.bits_per_byte(), better ? ", the best so far" : ""));
    if (better) {
      state_.best_loss = e.loss();
      save_model_dir(best_, training_->model(), corpus_.tokenizer);
    }
    return e;
  }

  void save() {
    training_->expect_finite(state_.step);  // a broken model must not replace a good one
    state_.threads = num_threads();
    save_checkpoint(last_, *training_, corpus_.tokenizer, state_);
  }

  TrainConfig config_;
  std::string last_, best_;
  Progress progress_;
  Corpus corpus_;
  RandomWindows windows_;
  TrainerState state_;
  std::unique_ptr<TrainingState> training_;
  double tokens_per_second_ = 0;
};

}  // namespace

Evaluation train(const TrainConfig& config, StartMode mode, const std::function<bool()>& stop) {
  Run run(config, mode);
  return run(stop);
}

}  // namespace qkv

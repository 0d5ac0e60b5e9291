#include "qkv/train/run/trainer.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/file.h"
#include "qkv/base/hash.h"
#include "qkv/base/parallel.h"
#include "qkv/base/progress.h"
#include "qkv/base/version.h"
#include "qkv/data/table.h"
#include "qkv/kernels/kernels.h"
#include "qkv/train/run/best_model.h"
#include "qkv/train/run/initial_weights.h"
#include "qkv/train/run/recorder.h"
#include "qkv/train/run/resume.h"
#include "qkv/train/run/run_folder.h"
#include "qkv/train/run/run_setup.h"
#include "qkv/train/run/run_text.h"

namespace qkv {
namespace {

// Throws Error naming the first rank whose lines differ from those of the first rank.
void expect_same_everywhere(const std::string& lines, Communicator& ranks) {
  if (ranks.alone()) return;
  const std::vector<std::string> all = ranks.gather(lines);
  const std::vector<std::string> first = lines_of(all[0]);
  for (size_t r = 1; r < all.size(); ++r) {
    const std::vector<std::string> others = lines_of(all[r]);
    const auto [a, b] = std::ranges::mismatch(first, others);
    if (a == first.end() && b == others.end()) continue;
    const std::string none = "nothing";
    fail(
        "rank {} of {} has '{}' where rank 0 has '{}': all ranks need the same build, threads, instruction "
        "set, settings, data and checkpoint",
        r, all.size(), b == others.end() ? none : *b, a == first.end() ? none : *a);
  }
}

// Lines that tell the work of a rank, and all that decides its bits.
std::string identity(const RunSetup& run, StartMode mode) {
  const TrainConfig& c = run.config;
  std::string data = run.task->data_text();
  if (const size_t at = data.find(" (cached)"); at != std::string::npos) data.erase(at, 9);
  return fmt::format(
      "qkv = {} ({})\nthreads = {}\ninstruction set = {}{}\n--resume = {}\ntrain.zero = {}\n"
      "train.checkpoint_every = {}\nsteps done = {}\nwindows of a pass = {}\n{}data = {}\n",
      version(), hash_of(read_file("/proc/self/exe")), num_threads(), kernels().name,
      bf16_is_fast() ? " with bf16" : "", mode == StartMode::resume, c.zero, c.checkpoint_every,
      run.state.step, run.state.batch, run_fingerprint(c, *run.task), data);
}

// The weights with which a rank begins, in lines.
std::string hashes_of(const Transformer& model) {
  std::string all;
  for (const Parameter& p : model.parameters().all())
    if (p.value.defined()) {
      const auto bytes = p.value.value_bytes();
      all += hash_of(std::span(bytes.data(), bytes.size()));
    }
  return fmt::format("weights = {}\n", hash_of(all));
}

// A run with its parts: train() is the loop. Each rank has one, and computes the same; the first writes.
class Run {
 public:
  Run(const TrainConfig& config, StartMode mode, Communicator& ranks)
      : ranks_(ranks),
        folder_(config.out),
        progress_(kSecondsBetweenLines, !ranks.leads()),
        setup_(set_up(config, mode)),
        recorder_(setup_, progress_, ranks.leads()),
        best_(config_, setup_.task->best_by(), state_.best),
        training_(initial_model(mode), config_.step,
                  {.compute = config_.compute(),
                   .seed = config_.seed,
                   .recompute = config_.recompute,
                   .shards = config_.shards,
                   .any_order = config_.shard_order == "any",
                   .zero = config_.zero},
                  ranks) {
    if (mode == StartMode::resume) load_training(folder_.last(), training_);
    saved_ = mode == StartMode::resume;
    expect_same_everywhere(hashes_of(training_.model()), ranks_);  // then nobody reads the old checkpoint
    if (!ranks_.leads()) return;
    if (mode == StartMode::resume)
      folder_.drop_surplus(config_.keep);
    else
      folder_.open(mode);  // only now: a configuration that fails leaves no trace and replaces no run
    write_file_atomically(config_.out + "/config.toml", to_toml(config_));
  }

  Evaluation train(const std::function<bool()>& stop) {
    recorder_.introduce();
    if (finished()) {
      recorder_.note(finished_text(setup_, best_.out_of_patience()));
      recorder_.report();  // which a run that was killed after its last checkpoint lacks
      return {};
    }
    recorder_.begin();
    if (state_.step == 0) recorder_.trace(training_.model());
    bool interrupted = false;
    while (!finished() && !interrupted) {
      const auto begun = Recorder::Clock::now();
      recorder_.step(step(), begun);
      recorder_.trace(training_.model());
      interrupted = ranks_.any(stop && stop());
      if (state_.step < config_.steps) evaluate_and_save(interrupted);
    }
    if (!interrupted || state_.step == config_.steps) return finish();
    recorder_.note(fmt::format("stopped after step {}: saved in {}; continue with --resume", state_.step,
                               folder_.last()));
    return {};
  }

 private:
  // The first rank sets up before the others: it trains the tokenizer, which they are given, and puts the
  // tokens into the cache.
  RunSetup set_up(TrainConfig config, StartMode mode) {
    if (ranks_.alone()) return set_up_alone(config, mode);
    check(config.shards >= ranks_.size(),
          "train.shards = {}: too few for {} ranks: set it to a power of two of "
          "at least {}",
          config.shards, ranks_.size(), ranks_.size());
    check(config.batch > 0,
          "train.batch = \"fit\": several ranks need a number (qkv plan shows the largest)");
    std::optional<RunSetup> setup;
    if (ranks_.leads()) setup = set_up_alone(config, mode);
    const auto shared = [&](const std::function<std::string(const text::Tokenizer&)>& part) {
      return ranks_.broadcast(setup ? part(setup->task->tokenizer()) : std::string());
    };
    const std::string json = shared([](const text::Tokenizer&t) { return t.to_json(); }),
                      of_sources = shared([](const text::Tokenizer&t) {
                        return t.has_own_sources() ? t.of_sources().to_json() : std::string();
                      });
    if (!ranks_.leads()) {
      auto tokenizer = text::Tokenizer::from_json(json);
      if (!of_sources.empty()) tokenizer = tokenizer.with_sources(text::Tokenizer::from_json(of_sources));
      config.tokenizer.trained = std::make_shared<const text::Tokenizer>(std::move(tokenizer));
      setup = set_up_run(config, mode, folder_, progress_, ranks_.size());
    }
    expect_same_everywhere(identity(*setup, mode), ranks_);
    return std::move(*setup);
  }

  RunSetup set_up_alone(const TrainConfig& config, StartMode mode) {
    if (mode == StartMode::resume)
      folder_.open(mode);
    else
      folder_.expect_startable(mode);
    return set_up_run(config, mode, folder_, progress_, ranks_.size());
  }

  std::unique_ptr<Transformer> initial_model(StartMode mode) const {
    if (mode != StartMode::resume) return qkv::initial_model(config_, setup_.task->tokenizer());
    std::unique_ptr<Transformer> model = load_model(folder_.last(), DType::f32);
    if (ranks_.alone() || model->spec().lora.any()) return model;
    // The first rank replaces this checkpoint. A network disk then takes its files from other machines, where
    // frozen weights would still be read from them.
    freeze(*model, config_.step);
    const auto leave_file = [](Tensor& x) {
      if (x.borrowed()) x = x.clone();
    };
    for (Parameter& p : model->parameters().all())
      if (p.frozen) leave_file(p.value);
    for (auto* kept : {&model->parameters().kept, &model->parameters().kept_rows})
      for (auto& [name, tensor] : *kept) leave_file(tensor);
    return model;
  }

  bool finished() const { return state_.step >= config_.steps || best_.out_of_patience(); }

  StepResult step() {
    const std::vector<Batch> micro_batches = setup_.task->batches(state_.step + 1, state_.batch);
    try {
      const StepResult result = training_.step(micro_batches, state_.step + 1, config_.steps);
      ++state_.step;
      state_.smooth(result.loss);
      return result;
    } catch (const Error& e) {
      if (saved_) fail("{}; the last good checkpoint is {}", e.what(), folder_.last());
      throw;
    }
  }

  // Does what is due after a step that is not the last.
  void evaluate_and_save(bool interrupted) {
    const bool evaluates = state_.step % config_.eval_every == 0;
    if (evaluates) evaluate(false);
    if (state_.step % config_.checkpoint_every == 0 || interrupted) save();
    if (evaluates || interrupted) recorder_.report();
  }

  Evaluation finish() {
    if (best_.out_of_patience())
      recorder_.note(fmt::format("step {}: stopped early: {} brought nothing better", state_.step,
                                 counted(state_.best.evaluations_since, "evaluation")));
    Evaluation e = evaluate(true);
    training_.expect_finite(state_.step);
    test_best();  // before the checkpoint: a run that is killed here is resumed, and tested then
    save();
    recorder_.report();
    if (ranks_.leads()) recorder_.note(done_text(setup_, recorder_.seconds()));
    return e;
  }

  // Evaluates all validation data, or the part that every evaluation has. Saves a model that is the best.
  Evaluation evaluate(bool all) {
    const TrainingState::Averaged averaged(training_);
    const Task& task = *setup_.task;
    Transformer& model = training_.model();
    Evaluation e = task.evaluate(model, state_.batch, all, ranks_);
    if (e.tokens == 0) {  // no validation text, or documents of one token
      if (state_.step == config_.steps && config_.step.ema > 0) save_best();
      return e;
    }
    training_.expect_finite(state_.step);
    check(std::isfinite(e.loss()), "step {}: the validation loss is not finite: lower the learning rate",
          state_.step);
    recorder_.write_validation(e);
    // The same part tells the best each time; the last evaluation, of everything, could not be compared.
    const bool better =
        best_.improves(all && !task.looks_at_all() ? task.evaluate(model, state_.batch, false, ranks_) : e);
    recorder_.print_validation(e, model.spec(), better);
    if (better) {
      save_best();
      recorder_.write_evaluation("validation", e);
    }
    recorder_.samples(model);
    return e;
  }

  // The first rank alone: the others may not see its disk.
  void test_best() {
    if (!ranks_.leads()) return;
    const std::unique_ptr<Transformer> best =
        folder_.has_best() ? load_model(folder_.best(), DType::f32) : nullptr;
    const std::optional<Evaluation> e = setup_.task->test(best ? *best : training_.model());
    recorder_.test(e, setup_.task->baselines());
  }

  void save_best() {
    const TrainingState::WholeWeights weights(training_);
    if (ranks_.leads()) folder_.save_best(training_.model(), model_files_of(setup_, folder_));
  }

  void save() {
    training_.expect_finite(state_.step);  // a broken model must not replace a good one
    state_.threads = num_threads();
    const TrainingState::WholeWeights weights(training_);
    if (ranks_.leads())
      folder_.save_last(training_, model_files_of(setup_, folder_), state_, config_.keep);
    else
      send_training(training_);
    saved_ = true;
  }

  static constexpr double kSecondsBetweenLines = 10;

  Communicator& ranks_;
  RunFolder folder_;
  Progress progress_;
  RunSetup setup_;
  const TrainConfig& config_ = setup_.config;
  TrainerState& state_ = setup_.state;
  Recorder recorder_;
  BestModel best_;
  TrainingState training_;
  bool saved_ = false;  // there is a checkpoint of this run
};

}  // namespace

Evaluation train(const TrainConfig& config, StartMode mode, const std::function<bool()>& stop,
                 Communicator& ranks) {
  check(config.data.folds == 0 || config.data.fold > 0,
        "data.folds: {} models are trained by cross_validate(); train() needs data.fold, the one to train",
        config.data.folds);
  return Run(config, mode, ranks).train(stop);
}

void rehearse(const TrainConfig& config, StartMode mode) {
  const RunFolder folder(config.out);
  folder.expect_startable(mode);
  folder.expect_writable();
  Progress progress;
  const RunSetup setup = set_up_run(config, mode, folder, progress);
  Recorder(setup, progress).introduce();
}

}  // namespace qkv

#include "qkv/train/run/trainer.h"

#include <cmath>

#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/base/progress.h"
#include "qkv/train/run/best_model.h"
#include "qkv/train/run/initial_weights.h"
#include "qkv/train/run/recorder.h"
#include "qkv/train/run/run_folder.h"
#include "qkv/train/run/run_setup.h"
#include "qkv/train/run/run_text.h"

namespace qkv {
namespace {

// A run with its parts: train() is the loop.
class Run {
 public:
  Run(const TrainConfig& config, StartMode mode)
      : folder_(config.out),
        setup_(set_up(config, mode)),
        recorder_(setup_, progress_),
        best_(config_, setup_.task->best_by(), state_.best),
        training_(initial_model(mode), config_.step, config_.compute(), config_.seed, config_.recompute) {
    if (mode == StartMode::resume)
      load_training(folder_.last(), training_);
    else
      folder_.open(mode);  // only now: a configuration that fails leaves no trace and replaces no run
    write_file_atomically(config_.out + "/config.toml", to_toml(config_));
  }

  Evaluation train(const std::function<bool()>& stop) {
    recorder_.introduce();
    if (finished()) {
      recorder_.note(finished_text(setup_, best_.out_of_patience()));
      return {};
    }
    recorder_.begin();
    if (state_.step == 0) recorder_.trace(training_.model());
    bool interrupted = false;
    while (!finished() && !interrupted) {
      const auto begun = Recorder::Clock::now();
      recorder_.step(step(), begun);
      recorder_.trace(training_.model());
      interrupted = stop && stop();
      if (state_.step < config_.steps) evaluate_and_save(interrupted);
    }
    if (!interrupted || state_.step == config_.steps) return finish();
    recorder_.note(fmt::format("stopped after step {}: saved in {}; continue with --resume", state_.step,
                               folder_.last()));
    return {};
  }

 private:
  RunSetup set_up(const TrainConfig& config, StartMode mode) {
    if (mode == StartMode::resume)
      folder_.open(mode);
    else
      folder_.expect_startable(mode);
    return set_up_run(config, mode, folder_, progress_);
  }

  std::unique_ptr<Transformer> initial_model(StartMode mode) const {
    return mode == StartMode::resume ? load_model(folder_.last(), DType::f32)
                                     : qkv::initial_model(config_, setup_.task->tokenizer());
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
      if (folder_.has_checkpoint()) fail("{}; the last good checkpoint is {}", e.what(), folder_.last());
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
    recorder_.note(done_text(setup_, recorder_.seconds()));
    return e;
  }

  // Evaluates all validation data, or the part that every evaluation has. Saves a model that is the best.
  Evaluation evaluate(bool all) {
    const TrainingState::Averaged averaged(training_);
    const Task& task = *setup_.task;
    Transformer& model = training_.model();
    Evaluation e = task.evaluate(model, state_.batch, all);
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
        best_.improves(all && !task.looks_at_all() ? task.evaluate(model, state_.batch, false) : e);
    recorder_.print_validation(e, model.spec(), better);
    if (better) {
      save_best();
      recorder_.write_evaluation("validation", e);
    }
    recorder_.samples(model);
    return e;
  }

  void test_best() {
    const std::unique_ptr<Transformer> best =
        folder_.has_best() ? load_model(folder_.best(), DType::f32) : nullptr;
    const std::optional<Evaluation> e = setup_.task->test(best ? *best : training_.model());
    recorder_.test(e, setup_.task->baselines());
  }

  void save_best() { folder_.save_best(training_.model(), model_files_of(setup_, folder_)); }

  void save() {
    training_.expect_finite(state_.step);  // a broken model must not replace a good one
    state_.threads = num_threads();
    folder_.save_last(training_, model_files_of(setup_, folder_), state_, config_.keep);
  }

  RunFolder folder_;
  Progress progress_;
  RunSetup setup_;
  const TrainConfig& config_ = setup_.config;
  TrainerState& state_ = setup_.state;
  Recorder recorder_;
  BestModel best_;
  TrainingState training_;
};

}  // namespace

Evaluation train(const TrainConfig& config, StartMode mode, const std::function<bool()>& stop) {
  check(config.data.folds == 0 || config.data.fold > 0,
        "data.folds: {} models are trained by cross_validate(); train() needs data.fold, the one to train",
        config.data.folds);
  return Run(config, mode).train(stop);
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

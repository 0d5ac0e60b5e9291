// The training loop: steps, validation, metrics, checkpoints.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "qkv/train/config.h"
#include "qkv/train/corpus.h"
#include "qkv/train/evaluate.h"
#include "qkv/train/optimizer.h"

namespace qkv {

// What one step did.
struct StepResult {
  double loss = 0;  // nats per token
  double gradient_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;
};

// A model with its gradients and optimizer. One step is a function of (parameters, optimizer state, batches,
// seed, step) alone.
class TrainingState {
 public:
  TrainingState(std::unique_ptr<Decoder> model, const OptimizerConfig& config, DType compute, uint64_t seed,
                bool recompute);

  // One update from micro-batches. The loss is divided by all their targets, so that they equal one big
  // batch. Throws Error, with the parameters untouched, when loss or gradient is not finite.
  StepResult step(const std::vector<Batch>& micro_batches, int64_t step, int64_t steps);

  // Throws Error naming the parameter when one holds something that is not finite.
  void expect_finite(int64_t step);

  Decoder& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }

 private:
  std::unique_ptr<Decoder> model_;
  OptimizerConfig config_;
  std::unique_ptr<Optimizer> optimizer_;
  uint64_t seed_;
};

// What becomes of a run that the folder holds already: refused, continued, replaced.
enum class StartMode { fresh, resume, overwrite };

// Runs a configuration to its end. Writes OUT/last (a checkpoint with the optimizer's state), OUT/best (the
// model with the lowest validation loss), OUT/metrics.jsonl and OUT/config.toml. `stop` is asked after each
// step: true saves and returns early. Returns the last evaluation of the whole validation text.
Evaluation train(const TrainConfig& config, StartMode mode, const std::function<bool()>& stop);

// DIR itself, or DIR/best, or DIR/last: the model directory that a run's or a model's path means.
std::string resolve_model_dir(const std::string& dir);

}  // namespace qkv

// One step of training: batches in, moved weights out.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "qkv/data/dataset.h"
#include "qkv/models/transformer.h"
#include "qkv/train/optim/optimizer.h"
#include "qkv/train/optim/schedule.h"

namespace qkv {

// What a step does besides following the gradient of the model's own loss.
struct StepConfig {
  OptimizerConfig optimizer = {};
  ScheduleConfig schedule = {};
  double clip = 1;  // of the gradient's norm (Pascanu et al. 2013); 0: none
  LossTerms terms = {};
  double layer_drop = 0;  // probability that a step skips a block (Fan et al. 2020)
  double gradient_noise =
      0;  // eta of the variance eta / (1 + t)^0.55 (Neelakantan et al. 2015), after clipping
  double weight_noise = 0;  // standard deviation of what is added to matrices while a gradient is computed
                            // (Graves 2011)
  // Parameters by their names, '*' for any characters, that stay as they are.
  std::vector<std::string> freeze = {};
  // The rate of a block is this times that of the block above; the embeddings stand below the first, heads
  // above the last (Howard & Ruder 2018, "discriminative fine-tuning").
  double layer_decay = 1;
  // Size of a step along the gradient of the token embeddings; the gradient there is added to the plain one
  // (Miyato et al. 2017, "fast gradient method"); 0: none.
  double adversarial = 0;
  double ema = 0;  // decay of a moving average of the weights, which validation then uses; 0: none
};

// Marks what `config.freeze` names, before training is prepared. Throws Error for a pattern that names
// nothing, and where nothing is left to be learnt.
void freeze(Transformer& model, const StepConfig& config);

// What one step did.
struct StepResult {
  double loss = 0;  // nats per token, with the terms that training adds
  double gradient_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;
};

// A model with its gradients and optimizer. One step is a function of (parameters, optimizer state, batches,
// seed, step) alone.
class TrainingState {
 public:
  // `compute`: f32 or bf16, the type of the products. `recompute`: activation checkpointing.
  explicit TrainingState(std::unique_ptr<Transformer> model, const StepConfig& config = {},
                         DType compute = DType::f32, uint64_t seed = 0, bool recompute = false);

  // One update from micro-batches. The loss is divided by all their targets, so that they equal one big
  // batch. Throws Error, with the parameters untouched, when loss or gradient is not finite.
  StepResult step(const std::vector<Batch>& micro_batches, int64_t step, int64_t steps);

  // Throws Error naming the parameter when one holds something that is not finite.
  void expect_finite(int64_t step);

  Transformer& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  // What is remembered besides the weights, by name: the optimizer's state and the average.
  std::vector<std::pair<std::string, Tensor>> state();
  // What layers remember of the texts that are read on, by name; nothing where the model has no memory.
  std::vector<std::pair<std::string, Tensor>> memory() const;
  // That, back. Throws Error naming the tensor that does not fit.
  void load_memory(const std::map<std::string, Tensor>& saved);

  // While one lives, the model has the averaged weights, where an average is kept.
  class Averaged {
   public:
    explicit Averaged(TrainingState& training) : training_(training) { training_.exchange_average(); }
    ~Averaged() { training_.exchange_average(); }
    Averaged(const Averaged&) = delete;
    Averaged& operator=(const Averaged&) = delete;

   private:
    TrainingState& training_;
  };

 private:
  // Forward and backward of all micro-batches; adds to the gradients that there are.
  void accumulate(const std::vector<Batch>& micro_batches, int64_t step, StepResult& result, bool observed);
  // The same where the token embeddings were moved against the model.
  void accumulate_adversarial(const std::vector<Batch>& micro_batches, int64_t step);
  void update_average(int64_t step);
  void exchange_average();

  std::unique_ptr<Transformer> model_;
  StepConfig config_;
  std::unique_ptr<Optimizer> optimizer_;
  uint64_t seed_;
  Tensor average_[2];  // of each arena's master
  // Of each micro-batch, whose streams its windows go on with: the states of all layers.
  std::vector<SegmentStates> memory_;
};

}  // namespace qkv

// One training step: updates the weights from batches.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/communicator.h"
#include "qkv/data/dataset.h"
#include "qkv/models/transformer.h"
#include "qkv/optim/optimizer.h"
#include "qkv/optim/schedule.h"
#include "qkv/optim/shard_sum.h"

namespace qkv {

// Options of an optimizer step.
struct StepConfig {
  OptimizerConfig optimizer = {};
  ScheduleConfig schedule = {};
  double clip = 1;  // bound of the gradient norm (Pascanu et al. 2013); 0: no clipping
  LossTerms terms = {};
  double layer_drop = 0;      // probability that a step skips a block (Fan et al. 2020)
  double gradient_noise = 0;  // eta in variance eta / (1 + t)^0.55, after clipping (Neelakantan et al. 2015)
  double weight_noise = 0;    // standard deviation of noise on matrices in each gradient (Graves 2011)
  // Names of parameters to freeze; '*' stands for any characters.
  std::vector<std::string> freeze = {};
  // Factor from the learning rate of each block to the one below (Howard & Ruder 2018, "discriminative
  // fine-tuning"). Embeddings are below the first block, heads above the last.
  double layer_decay = 1;
  // Size of the adversarial step along the gradient of the token embeddings (Miyato et al. 2017, "fast
  // gradient method"); 0: none. The gradient at that point is added to the plain one.
  double adversarial = 0;
  double ema = 0;  // decay of a moving average of the weights, which validation uses; 0: none
};

// Freezes the parameters that `config.freeze` names. Call before preparing training. Throws Error for a
// pattern that matches nothing, or if nothing is left to train.
void freeze(Transformer& model, const StepConfig& config);

// Result of one step.
struct StepResult {
  double loss = 0;  // nats per token, with the extra terms of training
  double gradient_norm = 0;
  double learning_rate = 0;
  int64_t tokens = 0;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// How a model is computed while it is trained.
struct TrainingOptions {
  DType compute = DType::f32;  // f32 or bf16, the type of matrix products
  uint64_t seed = 0;
  bool recompute = false;  // activation checkpointing
  int64_t shards = 1;      // passes of a step: a power of two. 1: gradients add up in the order of passes
  // Each rank adds up its shards as they come: faster, and the bits depend on the number of ranks.
  bool any_order = false;
  // Each rank keeps the optimizer's state of its part of the matrices alone and, with bf16, the f32 weights
  // (Rajbhandari et al. 2020, "ZeRO", stage 1). The bits are the same.
  bool zero = false;
};

// A model with its gradients and optimizer. One step is a function of (parameters, optimizer state, batches,
// seed, step) alone. With shards, the ranks divide a step's passes: the result has the same bits for any
// number of ranks.
class TrainingState {
 public:
  explicit TrainingState(std::unique_ptr<Transformer> model, const StepConfig& config = {},
                         const TrainingOptions& options = {}, Communicator& ranks = single_process());

  // One update from micro-batches, the same on each rank; there are as many as shards if these are several.
  // The loss is divided by the number of all their targets, so that they equal one large batch. Throws Error
  // if the loss or gradient is not finite, and leaves the parameters unchanged. Ranks call it together.
  StepResult step(const std::vector<Batch>& micro_batches, int64_t step, int64_t steps);

  // Throws Error naming the parameter if a weight is not finite.
  void expect_finite(int64_t step);

  Transformer& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  // The state besides the weights, by name: that of the optimizer, and the average. With `zero`, that of this
  // rank's part.
  NamedTensors state();
  // The shape on all ranks together of a tensor of state().
  Shape whole_shape(const std::string& name, const Tensor& mine) const;
  // Gives the bytes of such a tensor on all ranks to `take` on the first, in order and piece by piece.
  // Ranks call it together; others than the first may leave `take` empty.
  void collect(const std::string& name, const Tensor& mine,
               const std::function<void(std::span<const std::byte>)>& take) const;
  // The part of the whole tensor that this rank's state() has.
  Tensor own_part(const std::string& name, const Tensor& whole) const;
  // Makes the first rank's weights whole while one of these exists, so that it can save them. Ranks make it
  // together.
  class WholeWeights {
   public:
    explicit WholeWeights(TrainingState& training) : training_(training) { training_.collect_weights(); }
    ~WholeWeights() { training_.release_weights(); }
    WholeWeights(const WholeWeights&) = delete;
    WholeWeights& operator=(const WholeWeights&) = delete;

   private:
    TrainingState& training_;
  };
  // The layers' memory of texts that later batches continue, by name: of all ranks on the first, nothing on
  // others. Empty if the model has no memory. Ranks call it together.
  NamedTensors memory() const;
  // Restores memory(). Throws Error naming a tensor that does not fit.
  void load_memory(const std::map<std::string, Tensor>& saved);

  // Gives the model the averaged weights for its lifetime, if there is an average. Ranks make it together.
  class Averaged {
   public:
    explicit Averaged(TrainingState& training) : training_(training) { training_.exchange_average(); }
    // After an error, other ranks need not be here: the weights are not to be used any more.
    ~Averaged() noexcept(false) {
      if (std::uncaught_exceptions() == errors_) training_.exchange_average();
    }
    Averaged(const Averaged&) = delete;
    Averaged& operator=(const Averaged&) = delete;

   private:
    TrainingState& training_;
    int errors_ = std::uncaught_exceptions();
  };

 private:
  // Runs all micro-batches forward and backward. Adds to the gradients without shards, and otherwise
  // replaces them by the sum of all ranks.
  void accumulate(const std::vector<Batch>& micro_batches, int64_t step, StepResult& result, bool observed);
  // Runs one of them. Returns the sum of its losses over the number of all targets.
  double pass(const Batch& b, size_t index, const Context& context, int64_t targets);
  // After the passes whose gradients are one leaf of the sum: makes these whole, and turns the averages that
  // the passes moved into gradients.
  void complete_leaf(const std::vector<Tensor>& averages_before);
  std::vector<Tensor> averages();
  std::vector<Parameter*> moving_averages();
  // The same at the token embeddings after the adversarial step.
  void accumulate_adversarial(const std::vector<Batch>& micro_batches, int64_t step);
  void update_average(int64_t step);
  void exchange_average();
  // The part of an arena that this rank updates.
  Part own(ParameterKind kind) const;
  // True if ranks have parts of this tensor of state().
  bool is_divided(const std::string& name) const;
  // True if other ranks have the f32 weights of their parts of the matrices.
  bool weights_divided() const;
  // Sends the weights that this rank has updated to all others.
  void share_weights();
  void collect_weights();
  void release_weights();

  std::unique_ptr<Transformer> model_;
  StepConfig config_;
  TrainingOptions options_;
  Communicator& ranks_;
  std::unique_ptr<Optimizer> optimizer_;
  std::optional<ShardSum> sum_;
  Tensor average_[2];  // average of each arena's master
  // For each micro-batch of this rank, whose windows continue its streams: the states of all layers.
  std::map<size_t, SegmentStates> memory_;
};

}  // namespace qkv

// A checkpoint: a model directory that also holds the optimizer's state and trainer_state.json.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "qkv/io/model_dir.h"
#include "qkv/optim/training_state.h"
#include "qkv/train/run/model_files.h"

namespace qkv {

// The best evaluation of a run so far.
struct BestSoFar {
  double error = std::numeric_limits<double>::infinity();  // the loss in nats, or one minus a score
  int64_t evaluations_since = 0;
};

// The contents of trainer_state.json: where a run stands.
struct TrainerState {
  int64_t step = 0;   // steps done
  int64_t batch = 0;  // windows of a micro-batch
  BestSoFar best = {};
  double smoothed_loss = 0;  // nats
  int threads = 0;
  std::string fingerprint = {};

  // Adds the loss of the step just counted: a mean at first, with a half-life of some 14 steps later.
  void smooth(double loss) {
    smoothed_loss += std::max(0.05, 1 / static_cast<double>(step)) * (loss - smoothed_loss);
  }
};

// Writes DIR in one step: the old checkpoint or the new one, never a mixture. If there are several ranks, the
// others call send_training() meanwhile. REQUIRES: training's WholeWeights.
void save_checkpoint(const std::string& dir, TrainingState& training, const ModelFiles& files,
                     const TrainerState& state);
// Sends the first rank what its save_checkpoint() lacks.
void send_training(TrainingState& training);
// The model alone, without what training needs.
void save_model_dir(const std::string& dir, const Transformer& model, const ModelFiles& files);
// The same of a model that was trained from nothing.
void save_model_dir(const std::string& dir, const Transformer& model, const text::Tokenizer& tokenizer);

// Reads DIR/trainer_state.json. Throws Error naming the field that is wrong.
TrainerState load_trainer_state(const std::string& dir);
// Reads what training.state() holds back in place. Throws Error when it belongs to another configuration.
void load_training(const std::string& dir, TrainingState& training);

// The checkpoints that a run keeps besides the last, RUN/step-N, by their steps: those of steps before
// `before`.
std::map<int64_t, std::string> older_checkpoints(const std::string& run,
                                                 int64_t before = std::numeric_limits<int64_t>::max());
// The `count` newest of a run, the last one included, oldest first. Throws Error where there are fewer.
std::vector<std::string> newest_checkpoints(const std::string& run, int64_t count);

}  // namespace qkv

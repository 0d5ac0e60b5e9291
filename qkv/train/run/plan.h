// The cost of a run, before it starts: memory, arithmetic, time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "qkv/train/config/config.h"
#include "qkv/train/tasks/task.h"

namespace qkv {

// Peak memory of a step in bytes, by use.
struct MemoryPlan {
  int64_t weights = 0;  // f32 masters; frozen ones that are quantised or in 16 bits, as in their files
  int64_t shadows = 0;  // bf16 copies
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t average = 0;      // average of the weights, or their copy under weight noise
  int64_t activations = 0;  // kept for the backward pass
  int64_t work = 0;         // logits of a chunk of rows, intermediate gradients
  int64_t program = 0;      // code, libraries' scratch memory

  int64_t total() const {
    return weights + shadows + gradients + optimizer + average + activations + work + program;
  }
  // By name, for display.
  std::vector<std::pair<std::string, int64_t>> parts() const;
};

// The number of parameters of a model, and of those that are trainable.
struct ParameterCount {
  int64_t all = 0, trainable = 0;
  // "3.4M parameters"; "283,152 parameters, 23,120 of them trainable (8.2%)".
  std::string text() const;
  // ", 23,120 of them trainable (8.2%)"; empty if all are.
  std::string trainable_text() const;
};
ParameterCount count_parameters(const TrainConfig& config);

// REQUIRES: config.model.vocab_size > 0. `batch`: windows per pass. With several `ranks`, each needs
// at most so much.
MemoryPlan memory_plan(const TrainConfig& config, int64_t batch, int ranks = 1);

// Memory that the run may use: config.memory_gb, or nine tenths of the free memory.
int64_t memory_limit(const TrainConfig& config);

// The largest number of windows per micro-batch that fits in `limit` bytes; 0 if none fits.
int64_t largest_batch(const TrainConfig& config, int64_t limit, int ranks = 1);

// The largest train.batch_tokens, an even number, that fits; 0 if not even two tokens fit. In a mixture of
// datasets micro-batches of `batch` windows must fit, too.
int64_t largest_batch_tokens(const TrainConfig& config, int64_t batch, int64_t limit);

// Floating-point operations of a step. A multiply-add counts as 2 and the backward pass as two forward
// passes; recomputation adds one. Attention counts under its causal mask.
double flops_per_step(const TrainConfig& config, int64_t batch);

// Seconds per step, extrapolated from models of one and two layers of these sizes. REQUIRES: a decoder that
// continues texts.
double measure_step_seconds(const TrainConfig& config, int64_t batch);
// The same for any run, measured on some of its own steps.
double measure_step_seconds(const TrainConfig& config, Task& task, int64_t batch);

}  // namespace qkv

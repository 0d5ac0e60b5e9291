// The cost of a run before it is started: memory, arithmetic, time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "qkv/train/config/config.h"
#include "qkv/train/tasks/task.h"

namespace qkv {

// Bytes, by what they hold, at the moment of a step that needs most.
struct MemoryPlan {
  int64_t weights = 0;  // f32 masters
  int64_t shadows = 0;  // bf16 copies
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t average = 0;      // of the weights, or their copy under weight noise
  int64_t activations = 0;  // kept for the backward pass
  int64_t work = 0;         // logits of a chunk of rows, gradients on their way
  int64_t program = 0;      // code, libraries' scratch memory

  int64_t total() const {
    return weights + shadows + gradients + optimizer + average + activations + work + program;
  }
  // By name, for people.
  std::vector<std::pair<std::string, int64_t>> parts() const;
};

// The numbers of a model, and those of them that training moves.
struct ParameterCount {
  int64_t all = 0, trainable = 0;
  // "3.4M parameters"; "283,152 parameters, 23,120 of them trainable (8.2%)".
  std::string text() const;
  // ", 23,120 of them trainable (8.2%)"; nothing where all are.
  std::string trainable_text() const;
};
ParameterCount count_parameters(const TrainConfig& config);

// REQUIRES: config.model.vocab_size > 0. `batch` windows a micro-batch.
MemoryPlan memory_plan(const TrainConfig& config, int64_t batch);

// What the run may take: config.memory_gb, or nine tenths of what is free.
int64_t memory_limit(const TrainConfig& config);

// The most windows of a micro-batch that fit into `limit` bytes; 0 where not one does.
int64_t largest_batch(const TrainConfig& config, int64_t limit);

// The most tokens of a micro-batch of sequences (train.batch_tokens, an even number) that fit, beside `batch`
// windows where data sets are mixed; 0 where not two do.
int64_t largest_batch_tokens(const TrainConfig& config, int64_t batch, int64_t limit);

// Floating-point operations of a step: 2 a multiply-add, the backward pass twice the forward pass
// (recomputation adds one), attention under its causal mask.
double flops_per_step(const TrainConfig& config, int64_t batch);

// Seconds of a step, from some steps of models of one and two layers of these sizes. REQUIRES: a decoder that
// continues texts.
double measure_step_seconds(const TrainConfig& config, int64_t batch);
// The same of any run, from some of its own steps.
double measure_step_seconds(const TrainConfig& config, Task& task, int64_t batch);

}  // namespace qkv

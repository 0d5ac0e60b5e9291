// A run: steps, validation, metrics, checkpoints.
#pragma once

#include <functional>
#include <string>

#include "qkv/base/communicator.h"
#include "qkv/train/config/config.h"
#include "qkv/train/run/start_mode.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// Runs a configuration to its end. Writes OUT/last (a checkpoint with the optimizer's state), OUT/step-N
// (older ones, where train.keep asks for them), OUT/best (the best model by train.best_by),
// OUT/metrics.jsonl, OUT/config.toml, OUT/report.html and, where there are scores, OUT/evaluation.json.
// `stop` is asked after each step: true saves and returns early. Returns the last evaluation of the whole
// validation text. Ranks call it together, with train.shards of at least their number; the first one writes.
Evaluation train(const TrainConfig& config, StartMode mode, const std::function<bool()>& stop,
                 Communicator& ranks = single_process());

// Checks all that train() would need - texts, tokenizer, checkpoint, memory, a place to write - and changes
// nothing. Throws what train() would.
void rehearse(const TrainConfig& config, StartMode mode);

}  // namespace qkv

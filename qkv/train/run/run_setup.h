// A run before its first step.
#pragma once

#include <memory>

#include "qkv/base/progress.h"
#include "qkv/train/config/config.h"
#include "qkv/train/run/checkpoint.h"
#include "qkv/train/run/run_folder.h"
#include "qkv/train/tasks/task.h"

namespace qkv {

// The data of a run, its configuration as they complete it, and where it stands.
struct RunSetup {
  TrainConfig config;
  std::unique_ptr<Task> task;
  TrainerState state = {};
  int ranks = 1;
};

// Reads the data and, to resume, the checkpoint; finds the model's sizes, the batch and the steps. Allocates
// no weights and writes nothing but `progress`, which is told what differs from the checkpoint. Throws Error
// where data, checkpoint or memory do not fit the configuration.
RunSetup set_up_run(const TrainConfig& config, StartMode mode, const RunFolder& folder, Progress& progress,
                    int ranks = 1);

}  // namespace qkv

// A run goes on from its last checkpoint: only as the same run, but for a few keys.
#pragma once

#include <string>

#include "qkv/base/progress.h"
#include "qkv/train/run/run_setup.h"

namespace qkv {

// The lines "key = value" by which two runs are told apart: settings, type of the products, data.
std::string run_fingerprint(const TrainConfig& config, const Task& task);

// Throws Error naming the first line in which the fingerprint of the checkpoint in `dir` differs from that of
// the configuration. Steps, evaluations and patience may; a key that an older version did not know had its
// default.
void expect_same_run(const std::string& dir, const std::string& saved, const std::string& given);

// Sets run.state to that of the checkpoint in `dir`, and steps and warm-up of run.config where they follow
// from it. `progress` is told of another number of threads and of another schedule. Throws Error where the
// checkpoint is damaged, is another run's, or leaves no step to do.
void resume_from(const std::string& dir, RunSetup& run, Progress& progress);

}  // namespace qkv

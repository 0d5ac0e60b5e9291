// k-fold cross-validation: every example is the test of a model that did not learn from it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "qkv/report/fold_scores.h"
#include "qkv/train/config/config.h"
#include "qkv/train/run/trainer.h"

namespace qkv {

// Trains config.data.folds models, one after the other, each in a run of its own: OUT/fold-1, OUT/fold-2, ...
// Resuming repeats no fold that is finished. Writes OUT/cross_validation.json: scores by name, each with
// "folds", "mean" and "deviation". Nothing where `stop` was true: it is asked after each step, and the run
// that it ends is saved. Throws what train() would; an Error where a fold gives no score. REQUIRES: folds >
// 1, fold 0.
// Ranks call it together; the first one writes, and has the scores.
std::optional<std::vector<FoldScores>> cross_validate(const TrainConfig& config, StartMode mode,
                                                      const std::function<bool()>& stop,
                                                      Communicator& ranks = single_process());

// The configuration of the run that fold `fold`, from 1, tests.
TrainConfig config_of_fold(const TrainConfig& config, int64_t fold);

}  // namespace qkv

// The best model of a run, and the end of a run that finds no better one.
#pragma once

#include <cstdint>
#include <string>

#include "qkv/train/config/config.h"
#include "qkv/train/run/checkpoint.h"
#include "qkv/train/tasks/evaluate.h"

namespace qkv {

// Compares evaluations by one score, and counts those since the best (early stopping: Prechelt 1998).
class BestModel {
 public:
  // `default_score`: decides where train.best_by is "auto". `so_far`: is updated here and saved with
  // checkpoints; it must outlive this.
  BestModel(const TrainConfig& config, const std::string& default_score, BestSoFar& so_far);

  // True where the evaluation beats all before it; the first always does. Throws Error where it lacks the
  // score.
  bool improves(const Evaluation& e);

  // True after train.patience evaluations without a better one; never where that is 0.
  bool out_of_patience() const;

 private:
  // The loss in nats, or one minus a score.
  double error_of(const Evaluation& e) const;

  std::string score_;
  Objective objective_;
  int64_t patience_;
  BestSoFar& so_far_;
};

}  // namespace qkv

#include "qkv/train/run/best_model.h"

#include "qkv/base/error.h"

namespace qkv {

BestModel::BestModel(const TrainConfig& config, const std::string& default_score, BestSoFar& so_far)
    : score_(config.best_by == "auto" ? default_score : config.best_by),
      objective_(config.objective),
      patience_(config.patience),
      so_far_(so_far) {}

bool BestModel::improves(const Evaluation& e) {
  const double error = error_of(e);
  const bool better = error < so_far_.error;
  so_far_.evaluations_since = better ? 0 : so_far_.evaluations_since + 1;
  if (better) so_far_.error = error;
  return better;
}

bool BestModel::out_of_patience() const {
  return patience_ > 0 && so_far_.evaluations_since >= patience_;
}

double BestModel::error_of(const Evaluation& e) const {
  if (score_ == "loss") return e.loss();
  for (const auto& [name, value] : e.scores)
    if (name == score_) return 1 - value;
  fail("train.best_by: there is no {} of the objective {}", score_, name_of(objective_));
}

}  // namespace qkv

// The scores of cross-validation: how much they differ from fold to fold.
#pragma once

#include <string>
#include <vector>

#include "qkv/report/run_log.h"

namespace qkv {

// A score of every fold's test, or what a baseline reached on it.
struct FoldScores {
  std::string name;            // "accuracy"; "baseline_naive_bayes"
  std::vector<double> values;  // of fold 1, 2, ...

  double mean() const;
  double deviation() const;  // of the sample: with values - 1 in the denominator
  // For people: "accuracy", "baseline: naive Bayes".
  std::string label() const;
};

// The runs of a cross-validation's folds in `dir`: DIR/fold-1, DIR/fold-2, ... as far as they have begun.
// Empty where it holds none.
std::vector<std::string> runs_of_folds(const std::string& dir);

// Adds the last value of each test score and baseline of fold `fold`, from 1. Throws Error where it has other
// scores than the folds before it, or none.
void add_fold_scores(const RunLog& log, int64_t fold, std::vector<FoldScores>& all);

// A row for each fold, and below them their mean and deviation; the first row has the names.
std::vector<std::vector<std::string>> fold_rows(const std::vector<FoldScores>& all);

}  // namespace qkv

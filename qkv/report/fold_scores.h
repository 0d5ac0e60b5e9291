// Scores of cross-validation and their variation between folds.
#pragma once

#include <string>
#include <vector>

#include "qkv/report/run_log.h"

namespace qkv {

// A test score for every fold, or that of a baseline.
struct FoldScores {
  std::string name;            // "accuracy"; "baseline_naive_bayes"
  std::vector<double> values;  // values of fold 1, 2, ...

  double mean() const;
  double deviation() const;  // sample standard deviation: with values - 1 in the denominator
  // For display: "accuracy", "baseline: naive Bayes".
  std::string label() const;
};

// The runs of a cross-validation's folds in `dir`: those of DIR/fold-1, DIR/fold-2, ... that have begun.
// Empty if it has none.
std::vector<std::string> runs_of_folds(const std::string& dir);

// Adds the last value of each test score and baseline of fold `fold`, from 1. Throws Error if it has other
// scores than previous folds, or none.
void add_fold_scores(const RunLog& log, int64_t fold, std::vector<FoldScores>& all);

// A row for each fold, then their mean and deviation; the first row is the header.
std::vector<std::vector<std::string>> fold_rows(const std::vector<FoldScores>& all);

}  // namespace qkv

#include "qkv/report/fold_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/metrics/baseline_names.h"
#include "qkv/metrics/evaluation.h"

namespace qkv {

double FoldScores::mean() const {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double FoldScores::deviation() const {
  if (values.size() < 2) return 0;
  const double m = mean();
  double sum = 0;
  for (const double v : values) sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::string FoldScores::label() const {
  return name.starts_with(kBaselinePrefix) ? "baseline: " + baseline_name(name) : name;
}

std::vector<std::string> runs_of_folds(const std::string& dir) {
  std::vector<std::string> runs;
  for (int64_t f = 1;; ++f) {
    std::string run = fmt::format("{}/fold-{}", dir, f);
    if (!file_exists(run + "/metrics.jsonl")) return runs;
    runs.push_back(std::move(run));
  }
}

void add_fold_scores(const RunLog& log, int64_t fold, std::vector<FoldScores>& all) {
  constexpr std::string_view kTest = "test_";
  for (const auto& [field, points] : log.series) {
    const bool test = field.starts_with(kTest);
    if (points.empty() || !(test || field.starts_with(kBaselinePrefix))) continue;
    const std::string name = test ? field.substr(kTest.size()) : baseline_key(baseline_name(field));
    auto it = std::find_if(all.begin(), all.end(), [&](const FoldScores& s) { return s.name == name; });
    if (it == all.end()) it = all.insert(all.end(), {name, {}});
    check(std::ssize(it->values) == fold - 1, "{}: {} is missing in an earlier fold", log.dir, field);
    it->values.push_back(points.back().y);
  }
  // Baselines come after the scores that they are compared with.
  std::stable_partition(all.begin(), all.end(),
                        [](const FoldScores& s) { return !s.name.starts_with(kBaselinePrefix); });
  for (const FoldScores& s : all)
    check(std::ssize(s.values) == fold, "{}/metrics.jsonl: there is no {} of the test", log.dir, s.name);
  check(!all.empty(), "{}/metrics.jsonl: there is no score of the test", log.dir);
}

std::vector<std::vector<std::string>> fold_rows(const std::vector<FoldScores>& all) {
  std::vector<std::vector<std::string>> rows = {{"fold"}};
  for (size_t f = 0; f < all.front().values.size(); ++f) rows.push_back({std::to_string(f + 1)});
  rows.push_back({"mean"});
  rows.push_back({"deviation"});
  for (const FoldScores& s : all) {
    const std::string score =
        s.name.starts_with(kBaselinePrefix) ? baseline_score(baseline_name(s.name)) : s.name;
    rows[0].push_back(s.label());
    for (size_t f = 0; f < s.values.size(); ++f) rows[f + 1].push_back(score_text(score, s.values[f]));
    rows[rows.size() - 2].push_back(score_text(score, s.mean()));
    rows.back().push_back(score_text(score, s.deviation()));
  }
  return rows;
}

}  // namespace qkv

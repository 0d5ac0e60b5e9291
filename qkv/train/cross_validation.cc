#include "qkv/train/cross_validation.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/machine.h"
#include "qkv/base/progress.h"
#include "qkv/train/run_log.h"

namespace qkv {
namespace fs = std::filesystem;

namespace {

// The folder that holds the folds' runs.
class FoldsFolder {
 public:
  FoldsFolder(const TrainConfig& config, StartMode mode) : path_(config.out) {
    const auto has_folds = [&] { return file_exists(config_of_fold(config, 1).out); };
    if (mode == StartMode::fresh)
      check(!has_folds(),
            "{} holds a cross-validation already: continue it with --resume, replace it with --overwrite, or "
            "choose another train.out",
            path_);
    if (mode == StartMode::resume) check(has_folds(), "{}: there is no cross-validation to resume", path_);
    std::error_code error;
    fs::create_directories(path_, error);
    check(!error, "{}: cannot be created: {}", path_, error.message());
    lock_.emplace(path_);
    if (mode == StartMode::overwrite) remove_folds();
  }

 private:
  // Of any number of folds: they would be taken for parts of the new one.
  void remove_folds() const {
    fs::remove(path_ + "/cross_validation.json");
    for (int64_t f = 1; file_exists(fmt::format("{}/fold-{}", path_, f)); ++f)
      fs::remove_all(fmt::format("{}/fold-{}", path_, f));
  }

  std::string path_;
  std::optional<FolderLock> lock_;
};

// The last value of each test score and of each simple method, by the names of their records.
void add_scores(const std::string& run, int64_t fold, std::vector<FoldScores>& all) {
  const RunLog log = read_run_log(run);
  for (const auto& [field, points] : log.series) {
    const bool test = field.starts_with("test_");
    if (points.empty() || !(test || field.starts_with("baseline_"))) continue;
    const std::string name = test ? field.substr(5) : field;
    auto it = std::find_if(all.begin(), all.end(), [&](const FoldScores& s) { return s.name == name; });
    if (it == all.end()) it = all.insert(all.end(), {name, {}});
    check(std::ssize(it->values) == fold - 1, "{}: {} is missing in an earlier fold", run, field);
    it->values.push_back(points.back().y);
  }
  for (const FoldScores& s : all)
    check(std::ssize(s.values) == fold, "{}/metrics.jsonl: there is no {} of the test", run, s.name);
  check(!all.empty(), "{}/metrics.jsonl: there is no score of the test", run);
}

void write(const std::string& path, const TrainConfig& config, const std::vector<FoldScores>& all) {
  OrderedJson out = {{"folds", config.data.folds}, {"scores", OrderedJson::object()}};
  for (const FoldScores& s : all)
    out["scores"][s.name] = {{"folds", s.values}, {"mean", s.mean()}, {"deviation", s.deviation()}};
  write_file_atomically(path, out.dump(2) + "\n");
}

}  // namespace

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

TrainConfig config_of_fold(const TrainConfig& config, int64_t fold) {
  TrainConfig c = config;
  c.data.fold = fold;
  c.out = fmt::format("{}/fold-{}", config.out, fold);
  return c;
}

std::optional<std::vector<FoldScores>> cross_validate(const TrainConfig& config, StartMode mode,
                                                      const std::function<bool()>& stop) {
  check(config.data.folds > 1 && config.data.fold == 0, "cross-validation of {} folds", config.data.folds);
  const FoldsFolder folder(config, mode);
  bool stopped = false;
  const auto asked = [&] { return stopped = stopped || (stop && stop()); };
  std::vector<FoldScores> all;
  for (int64_t fold = 1; fold <= config.data.folds && !stopped; ++fold) {
    const TrainConfig c = config_of_fold(config, fold);
    // One without a checkpoint had not come so far. One that is finished says so, and that it is the same.
    const bool begun = file_exists(c.out + "/last/trainer_state.json");
    train(c, begun ? StartMode::resume : StartMode::overwrite, asked);
    if (!stopped) add_scores(c.out, fold, all);
  }
  if (stopped) {
    Progress().note(fmt::format("{}: not all folds are done; continue with --resume", config.out));
    return std::nullopt;
  }
  write(config.out + "/cross_validation.json", config, all);
  return all;
}

}  // namespace qkv

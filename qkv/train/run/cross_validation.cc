#include "qkv/train/run/cross_validation.h"

#include <filesystem>
#include <optional>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/machine.h"
#include "qkv/base/progress.h"
#include "qkv/report/run_log.h"

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
  // However many there are: they would be taken for parts of the new one.
  void remove_folds() const {
    fs::remove(path_ + "/cross_validation.json");
    for (int64_t f = 1; file_exists(fmt::format("{}/fold-{}", path_, f)); ++f)
      fs::remove_all(fmt::format("{}/fold-{}", path_, f));
  }

  std::string path_;
  std::optional<FolderLock> lock_;
};

void write(const std::string& path, const TrainConfig& config, const std::vector<FoldScores>& all) {
  OrderedJson out = {{"folds", config.data.folds}, {"scores", OrderedJson::object()}};
  for (const FoldScores& s : all)
    out["scores"][s.name] = {{"folds", s.values}, {"mean", s.mean()}, {"deviation", s.deviation()}};
  write_file_atomically(path, out.dump(2) + "\n");
}

}  // namespace

TrainConfig config_of_fold(const TrainConfig& config, int64_t fold) {
  TrainConfig c = config;
  c.data.fold = fold;
  c.out = fmt::format("{}/fold-{}", config.out, fold);
  return c;
}

std::optional<std::vector<FoldScores>> cross_validate(const TrainConfig& config, StartMode mode,
                                                      const std::function<bool()>& stop,
                                                      Communicator& ranks) {
  check(config.data.folds > 1 && config.data.fold == 0, "cross-validation of {} folds", config.data.folds);
  std::optional<FoldsFolder> folder;
  if (ranks.leads()) folder.emplace(config, mode);
  bool stopped = false;
  const auto asked = [&] { return stopped = stopped || (stop && stop()); };
  std::vector<FoldScores> all;
  for (int64_t fold = 1; fold <= config.data.folds && !stopped; ++fold) {
    const TrainConfig c = config_of_fold(config, fold);
    // One without a checkpoint had not come so far. One that is finished says so, and that it is the same.
    const bool begun = ranks.any(ranks.leads() && file_exists(c.out + "/last/trainer_state.json"));
    train(c, begun ? StartMode::resume : StartMode::overwrite, asked, ranks);
    stopped = ranks.any(stopped);
    if (!stopped && ranks.leads()) add_fold_scores(read_run_log(c.out), fold, all);
  }
  if (!ranks.leads()) return std::nullopt;
  if (stopped) {
    Progress().note(fmt::format("{}: not all folds are done; continue with --resume", config.out));
    return std::nullopt;
  }
  write(config.out + "/cross_validation.json", config, all);
  return all;
}

}  // namespace qkv

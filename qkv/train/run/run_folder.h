// The folder of a run: its lock, its checkpoints and its best model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "qkv/base/machine.h"
#include "qkv/train/run/checkpoint.h"
#include "qkv/train/run/model_files.h"
#include "qkv/train/run/start_mode.h"

namespace qkv {

// last/ is the newest checkpoint, step-N/ are older ones, best/ is the best model so far.
class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  std::string last() const { return path_ + "/last"; }
  std::string best() const { return path_ + "/best"; }
  bool has_checkpoint() const;
  bool has_best() const;

  // Throws Error where a fresh run would replace one, or where there is no checkpoint to resume from.
  void expect_startable(StartMode mode) const;
  // Throws Error where nothing can be written below the folder's nearest existing parent.
  void expect_writable() const;

  // Makes the folder where it is missing, locks it for this object's life and repairs what an interrupted
  // write left; the run in it is removed where it is to be replaced. Throws Error where another process holds
  // the lock, where the folder cannot be made, and as expect_startable() does.
  void open(StartMode mode);

  // Replaces best/ in one step. Throws Error, with the old one untouched, where it cannot be written.
  void save_best(const Transformer& model, const ModelFiles& files) const;
  // The same of last/. Of the checkpoints before it, `keep` - 1 stay as step-N.
  void save_last(TrainingState& training, const ModelFiles& files, const TrainerState& state,
                 int64_t keep) const;

 private:
  void repair() const;
  void remove_run() const;
  // Gives the checkpoint in last/, of `step`, a name of its own, and removes the oldest ones.
  void rotate_checkpoints(int64_t step, int64_t keep) const;

  std::string path_;
  std::optional<FolderLock> lock_;
};

}  // namespace qkv

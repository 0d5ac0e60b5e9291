// The run directory: its lock, its checkpoints and its best model.
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

  // Throws Error if a new run would replace one, or if there is no checkpoint to resume from.
  void expect_startable(StartMode mode) const;
  // Throws Error if the nearest existing parent of the folder is not writable.
  void expect_writable() const;

  // Creates the folder if it is missing, locks it for the lifetime of this object and repairs the state
  // after an interrupted write. Removes the run in it if `mode` says to replace it. Throws Error if another
  // process holds the lock or the folder cannot be created, and as expect_startable() does.
  void open(StartMode mode);

  // Replaces best/ atomically. If that fails, throws Error and leaves the old one unchanged.
  void save_best(const Transformer& model, const ModelFiles& files) const;
  // The same for last/, with the state of training. Keeps `keep` - 1 earlier checkpoints as step-N.
  void save_last(TrainingState& training, const ModelFiles& files, const TrainerState& state,
                 int64_t keep) const;
  // Removes the oldest of the checkpoints before last/ so that `keep` - 1 of them are left: an interrupted
  // save_last() leaves one more.
  void drop_surplus(int64_t keep) const;

 private:
  void repair() const;
  void remove_run() const;

  std::string path_;
  std::optional<FolderLock> lock_;
};

}  // namespace qkv

#include "qkv/train/run/run_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "qkv/base/file.h"

namespace qkv {
namespace fs = std::filesystem;

namespace {

// The files of a checkpoint under another name; its data is on the disk once where the file system has links.
void link_files(const std::string& from, const std::string& to) {
  for (const auto& file : fs::directory_iterator(from)) {
    const fs::path target = to / file.path().filename();
    std::error_code error;
    fs::create_hard_link(file.path(), target, error);
    if (error) fs::copy_file(file.path(), target);
  }
}

// In one step: repair() removes what an interrupted removal leaves.
void remove_checkpoint(const std::string& dir) {
  fs::rename(dir, dir + ".tmp");
  fs::remove_all(dir + ".tmp");
}

}  // namespace

bool RunFolder::has_checkpoint() const {
  return file_exists(last() + "/trainer_state.json");
}

bool RunFolder::has_best() const {
  return file_exists(best() + "/config.json");
}

void RunFolder::expect_startable(StartMode mode) const {
  if (mode == StartMode::fresh)
    check(!has_checkpoint() && !file_exists(best()),
          "{} holds a run already: {}replace it with --overwrite, or choose another train.out", path_,
          has_checkpoint() ? "continue it with --resume, " : "");
  if (mode == StartMode::resume) check(has_checkpoint(), "{}: there is no checkpoint to resume from", last());
}

void RunFolder::expect_writable() const {
  fs::path existing = fs::absolute(path_);
  while (!fs::exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
  check(fs::is_directory(existing), "{}: cannot be created: {} is not a directory", path_, existing.string());
  check(::access(existing.c_str(), W_OK) == 0, "{}: {} cannot be written", path_, existing.string());
}

void RunFolder::open(StartMode mode) {
  std::error_code error;
  if (mode == StartMode::resume && !fs::exists(path_, error)) expect_startable(mode);
  fs::create_directories(path_, error);
  check(!error, "{}: cannot be created: {}", path_, error.message());
  lock_.emplace(path_);
  repair();
  expect_startable(mode);  // once more: only now can no other process change it
  if (mode == StartMode::overwrite) remove_run();
}

void RunFolder::repair() const {
  for (const std::string& dir : {last(), best()}) recover_interrupted_write(dir);
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".tmp")) fs::remove_all(entry.path());
  }
}

void RunFolder::remove_run() const {
  // Before the last: without it, the next run would count them as its own.
  for (const auto& [step, older] : older_checkpoints(path_)) remove_checkpoint(older);
  fs::remove_all(last());
  fs::remove_all(best());
  fs::remove_all(path_ + "/traces");
  fs::remove(path_ + "/evaluation.json");  // which another kind of run would not replace
}

void RunFolder::save_best(const Transformer& model, const ModelFiles& files) const {
  save_model_dir(best(), model, files);
}

void RunFolder::save_last(TrainingState& training, const ModelFiles& files, const TrainerState& state,
                          int64_t keep) const {
  if (has_checkpoint() && keep > 1)
    if (const int64_t before = load_trainer_state(last()).step; before != state.step)
      write_directory_atomically(fmt::format("{}/step-{}", path_, before),
                                 [&](const std::string& to) { link_files(last(), to); });
  save_checkpoint(last(), training, files, state);
  drop_surplus(keep);
}

void RunFolder::drop_surplus(int64_t keep) const {
  auto older = older_checkpoints(path_, load_trainer_state(last()).step);
  for (int64_t surplus = std::ssize(older) - (keep - 1); surplus > 0; --surplus) {
    remove_checkpoint(older.begin()->second);
    older.erase(older.begin());
  }
}

}  // namespace qkv

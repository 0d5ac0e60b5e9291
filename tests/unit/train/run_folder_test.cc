#include "qkv/train/run/run_folder.h"

#include "qkv/base/file.h"
#include "qkv/text/trainer.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::run_folder_test {
namespace {

namespace fs = std::filesystem;
using testing::expect_error;

class RunFolderTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name = "") const { return dir_.path() + "/run" + name; }
  // A file of the run, in a folder of it that is made.
  void write(const std::string& name, const std::string& contents = "") const {
    fs::create_directories(fs::path(path("/" + name)).parent_path());
    dir_.write("run/" + name, contents);
  }

  testing::ScratchDir dir_;
};

TEST_F(RunFolderTest, StartsWhereTheModeFitsWhatItHolds) {
  RunFolder folder(path());
  folder.expect_startable(StartMode::fresh);
  expect_error([&] { folder.expect_startable(StartMode::resume); }, {path("/last"), "no checkpoint"});
  expect_error([&] { folder.open(StartMode::resume); }, {path("/last"), "no checkpoint"});
  EXPECT_FALSE(file_exists(path()));

  write("best/config.json");  // interrupted before its first checkpoint
  EXPECT_TRUE(folder.has_best());
  expect_error([&] { folder.expect_startable(StartMode::fresh); }, {path(), "--overwrite"});
  expect_error([&] { folder.expect_startable(StartMode::resume); }, {path("/last")});

  write("last/trainer_state.json");
  EXPECT_TRUE(folder.has_checkpoint());
  expect_error([&] { folder.expect_startable(StartMode::fresh); }, {path(), "--resume", "--overwrite"});
  folder.expect_startable(StartMode::resume);
  folder.expect_startable(StartMode::overwrite);
}

TEST_F(RunFolderTest, IsWritableWhereAFolderAboveItIs) {
  RunFolder(path("/not/there/yet")).expect_writable();
  EXPECT_FALSE(file_exists(path()));
  const std::string file = dir_.write("file", "");
  expect_error([&] { RunFolder(file + "/run").expect_writable(); }, {file, "not a directory"});
  expect_error([&] { RunFolder(file + "/run").open(StartMode::fresh); }, {file, "cannot be created"});
}

TEST_F(RunFolderTest, IsLockedUntilItIsGone) {
  {
    RunFolder folder(path());
    folder.open(StartMode::fresh);
    for (const StartMode mode : {StartMode::fresh, StartMode::overwrite})
      expect_error([&] { RunFolder(path()).open(mode); }, {path(), "another run"});
  }
  RunFolder(path()).open(StartMode::fresh);
}

TEST_F(RunFolderTest, OpeningRepairsWhatAnInterruptedWriteLeft) {
  write("last.old/trainer_state.json", "old");  // between two renames
  write("last.tmp/trainer_state.json", "half");
  write("best/config.json", "best");
  write("best.tmp/config.json", "half");
  write("step-4/trainer_state.json", "older");
  write("step-8.tmp/trainer_state.json", "half");
  RunFolder folder(path());
  folder.open(StartMode::resume);
  EXPECT_EQ(read_file(folder.last() + "/trainer_state.json"), "old");
  EXPECT_EQ(read_file(folder.best() + "/config.json"), "best");
  EXPECT_EQ(read_file(path("/step-4/trainer_state.json")), "older");
  for (const char* gone : {"/last.old", "/last.tmp", "/best.tmp", "/step-8.tmp"})
    EXPECT_FALSE(file_exists(path(gone))) << gone;
}

TEST_F(RunFolderTest, OverwritingRemovesTheRunAndNothingElse) {
  for (const char* name : {"last/trainer_state.json", "best/config.json", "step-4/trainer_state.json",
                           "evaluation.json", "notes.txt", "step-by-step/notes.txt"})
    write(name);
  RunFolder(path()).open(StartMode::overwrite);
  for (const char* gone : {"/last", "/best", "/step-4", "/evaluation.json"})
    EXPECT_FALSE(file_exists(path(gone))) << gone;
  EXPECT_TRUE(file_exists(path("/notes.txt")));
  EXPECT_TRUE(file_exists(path("/step-by-step/notes.txt")));
}

TEST_F(RunFolderTest, RotatesCheckpoints) {
  const text::Tokenizer tokenizer = text::train_bytes({});
  const ModelSpec spec = gpt2_spec(257, 8, 12, 1, 3);
  const ModelFiles files{tokenizer, special_ids_of(tokenizer, spec)};
  TrainingState training(std::make_unique<Transformer>(spec));
  RunFolder folder(path());
  folder.open(StartMode::fresh);
  const auto save = [&](int64_t step, int64_t keep) {
    folder.save_last(training, files, {.step = step, .batch = 1, .threads = 1}, keep);
    std::vector<int64_t> steps;
    for (const auto& [older, dir] : older_checkpoints(path())) {
      EXPECT_EQ(load_trainer_state(dir).step, older);
      steps.push_back(older);
    }
    EXPECT_EQ(load_trainer_state(folder.last()).step, step);
    return steps;
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(save(2, 3), Steps{});
  EXPECT_EQ(save(2, 3), Steps{});  // the same step again, as a run that was killed saves it
  EXPECT_EQ(save(9, 3), Steps{2});
  EXPECT_EQ(save(10, 3), (Steps{2, 9}));
  EXPECT_EQ(save(12, 3), (Steps{9, 10}));
  EXPECT_EQ(save(14, 2), Steps{12});
  EXPECT_EQ(save(16, 1), Steps{});
}

}  // namespace
}  // namespace qkv::run_folder_test

// qkv train: a configuration in, a model directory out.
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "qkv/base/communicator.h"
#include "qkv/base/file.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/train/config/key_help.h"
#include "qkv/train/corpora/corpus_cache.h"
#include "qkv/train/run/cross_validation.h"
#include "qkv/train/run/suggest_config.h"
#include "qkv/train/run/trainer.h"

namespace qkv {
namespace {

volatile std::sig_atomic_t stop_asked = 0;

// The first signal lets the step finish; a second one ends the program as usual.
void ask_to_stop(int signal) {
  stop_asked = 1;
  std::signal(signal, SIG_DFL);
}

struct TrainOptions {
  std::string config, preset, size;
  std::vector<std::string> set;
  bool resume = false, overwrite = false, dry_run = false;
  double rank_timeout_s = 1800;
};

// The configuration of the run in a folder, which is to be continued.
TrainConfig config_of_run(std::string dir, bool resume, std::vector<std::string> set) {
  while (dir.size() > 1 && dir.ends_with('/')) dir.pop_back();
  if (!resume)
    throw UsageError(dir + ": is a directory: name a configuration, or continue the run in it with --resume");
  const bool folds = !file_exists(dir + "/config.toml") && file_exists(dir + "/fold-1/config.toml");
  const std::string path = dir + (folds ? "/fold-1/config.toml" : "/config.toml");
  check(file_exists(path), "{}: no such file: {} holds no run", path, dir);
  if (folds) set.insert(set.begin(), "data.fold=0");
  TrainConfig config = read_train_config(path, set);
  config.out = dir;  // wherever it was when it began
  return config;
}

// A configuration that fits a file of data, or that of the run which such a one has begun.
TrainConfig config_of_data(const TrainOptions& o, std::vector<std::string> set) {
  if (!o.size.empty())
    throw UsageError("--size: " + o.config +
                     " is data, and qkv chooses the size: write a configuration with " +
                     "qkv init to choose it yourself");
  constexpr std::string_view kOut = "train.out=";
  SuggestOptions wishes{.data = o.config, .settings = set};
  for (const std::string& s : set)
    if (s.starts_with(kOut)) wishes.out = s.substr(kOut.size());
  const std::string dir =
      wishes.out.empty() ? "runs/" + std::filesystem::path(o.config).stem().string() : wishes.out;
  if (o.resume && file_exists(dir + "/config.toml")) return config_of_run(dir, true, std::move(set));
  if (!o.overwrite)
    check(!file_exists(dir + "/last") && !file_exists(dir + "/best"),
          "{} holds a run already: continue it with --resume, replace it with --overwrite, or choose another "
          "folder with --set train.out=DIR",
          dir);
  const SuggestedConfig made = suggest_config(wishes);
  fmt::print(stderr, "{} (to change this: qkv init)\n", made.about);
  return parse_train_config(made.toml, o.config, set);
}

// The configuration of a file, of data or of a run.
TrainConfig config_of(const TrainOptions& o, std::vector<std::string> set, Communicator& ranks) {
  if (std::filesystem::is_directory(o.config)) return config_of_run(o.config, o.resume, std::move(set));
  if (is_data_file(o.config)) {
    if (!ranks.alone())
      throw UsageError(o.config + ": is data: several ranks need a configuration, which qkv init writes");
    return config_of_data(o, std::move(set));
  }
  return read_train_config(o.config, set);
}

void run_on(const TrainOptions& o, Communicator& ranks) {
  std::vector<std::string> set = o.set;
  for (const auto& [key, value] : {std::pair("preset", o.preset), {"size", o.size}})
    if (!value.empty()) set.push_back(fmt::format("model.{}=\"{}\"", key, value));
  const TrainConfig config = config_of(o, set, ranks);
  const bool folds = config.data.folds > 0 && config.data.fold == 0;
  const StartMode mode = o.resume ? StartMode::resume : o.overwrite ? StartMode::overwrite : StartMode::fresh;
  if (o.dry_run) {
    if (!ranks.leads()) return;
    rehearse(folds ? config_of_fold(config, 1) : config, mode);
    const CorpusCache cache(config.data.cache);
    fmt::print(stderr, "Configuration is valid; no run was written{}.\n",
               cache.folder().empty() ? "" : fmt::format(" (tokens are cached in {})", cache.folder()));
    return;
  }
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  if (!ranks.alone()) std::signal(SIGUSR1, ask_to_stop);  // mpirun passes it on to all ranks
  const auto stop = [] { return stop_asked != 0; };
  if (!folds)
    train(config, mode, stop, ranks);
  else if (const auto scores = cross_validate(config, mode, stop, ranks))
    print(table_text(fold_rows(*scores)));
}

void run_train(const TrainOptions& o) {
  std::unique_ptr<Communicator> mpi = mpi_communicator(o.rank_timeout_s);
  if (mpi == nullptr) return run_on(o, single_process());
  try {
    run_on(o, *mpi);
  } catch (const std::exception& e) {
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&e) != nullptr;
    for (const std::string& line : mpi->fail_together(no_memory ? "out of memory" : e.what()))
      fmt::print(stderr, "qkv: {}\n", line);
    const bool usage = dynamic_cast<const UsageError*>(&e) != nullptr;
    mpi.reset();
    std::quick_exit(usage ? 2 : 1);  // main() would print the line again, on every rank
  }
}

}  // namespace

void add_train_command(Command& app) {
  auto o = std::make_shared<TrainOptions>();
  Command* c = app.add_subcommand("train", "Train a model from a configuration, or from data alone");
  c->add_option("CONFIG", o->config,
                "Configuration file (TOML), data file (.txt, .csv, .tsv, .jsonl, .conllu; trains for about "
                "five minutes), or with --resume the directory of a run")
      ->required();
  c->add_option("--set", o->set, "Override a setting: section.key=value (repeatable)")->one_value();
  c->add_option("--preset", o->preset,
                "Published architecture for settings that [model] leaves out (qkv config presets)");
  c->add_option("--size", o->size, "Size of the preset: tiny (width 128), small (384) or base (768)");
  auto* resume = c->add_flag("--resume", o->resume, "Continue from the checkpoint in train.out");
  c->add_flag("--dry-run", o->dry_run, "Check files, tokenizer, memory and output without training");
  c->add_option("--rank-timeout", o->rank_timeout_s,
                "With mpirun: seconds to wait for another rank before the run ends with an error")
      ->range(1.0, 1e6);
  c->add_flag("--overwrite", o->overwrite, "Replace the run in train.out")->excludes(resume);
  c->footer("Settings that most runs need (qkv config explains all of them):\n\n" + lines_of(common_keys()) +
            "\nCtrl-C finishes the step, saves a checkpoint and exits; --resume continues bit for bit.\n"
            "--resume --set train.steps=N trains longer, even after the end; linear, cosine and one_cycle\n"
            "schedules stretch over N steps. You may also change eval_every, patience and logging settings.\n"
            "data.folds = 5 runs cross-validation; to predict with all five models, use\n"
            "qkv classify runs/x/fold-1 --ensemble runs/x/fold-2 ...\n"
            "On several machines: mpirun -n N qkv train CONFIG, with train.shards of at least N.\n"
            "Examples: qkv train my.txt\n"
            "          qkv train my.toml --set train.steps=200\n"
            "          qkv train my.toml --preset llama --size small");
  c->callback([o] { run_train(*o); });
}

}  // namespace qkv

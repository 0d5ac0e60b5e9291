// qkv train: a configuration in, a model directory out.
#include <csignal>

#include "qkv/cli/command.h"
#include "qkv/train/trainer.h"

namespace qkv {
namespace {

volatile std::sig_atomic_t stop_asked = 0;

// The first signal lets the step finish; a second one ends the program as usual.
void ask_to_stop(int signal) {
  stop_asked = 1;
  std::signal(signal, SIG_DFL);
}

struct Options {
  std::string config;
  std::vector<std::string> set;
  bool resume = false, overwrite = false, dry_run = false;
};

void run(const Options& o) {
  const TrainConfig config = read_train_config(o.config, o.set);
  const StartMode mode = o.resume ? StartMode::resume : o.overwrite ? StartMode::overwrite : StartMode::fresh;
  if (o.dry_run) {
    rehearse(config, mode);
    fmt::print(stderr, "all is ready: nothing was written\n");
    return;
  }
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  train(config, mode, [] { return stop_asked != 0; });
}

}  // namespace

void add_train_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("train", "Train a model from text as a configuration says");
  c->add_option("CONFIG", o->config, "Configuration file (TOML)")->required();
  c->add_option("--set", o->set, "Override one key: section.key=value (repeatable)")->allow_extra_args(false);
  auto* resume = c->add_flag("--resume", o->resume, "Continue from the checkpoint in train.out");
  c->add_flag("--dry-run", o->dry_run,
              "Check everything - files, tokenizer, memory, output - and train nothing");
  c->add_flag("--overwrite", o->overwrite, "Replace the run in train.out")->excludes(resume);
  c->footer("A configuration in TOML: every key with its default, what it means and may be:\n\n" +
            train_config_help() +
            "\nCtrl-C finishes the step, saves and exits; --resume goes on bit for bit as if nothing had "
            "happened.\n"
            "Example: qkv train examples/shakespeare.toml --set train.steps=200");
  c->callback([o] { run(*o); });
}

}  // namespace qkv

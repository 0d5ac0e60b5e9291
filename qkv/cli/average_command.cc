// qkv average: one model from several.
#include <fmt/format.h>

#include "qkv/cli/command.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/run/average.h"
#include "qkv/train/run/checkpoint.h"

namespace qkv {
namespace {

struct AverageOptions {
  std::vector<std::string> dirs;
  std::string out;
  int64_t last = 0;
};

void run_average(const AverageOptions& o) {
  std::vector<std::string> models;
  for (const std::string& dir : o.dirs) {
    const std::vector<std::string> found =
        o.last > 0 ? newest_checkpoints(dir, o.last) : std::vector{resolve_model_dir(dir)};
    models.insert(models.end(), found.begin(), found.end());
  }
  average_models(models, o.out);
  fmt::print(stderr, "{}: the mean of {}\n", o.out, fmt::join(models, ", "));
}

}  // namespace

void add_average_command(Command& app) {
  auto o = std::make_shared<AverageOptions>();
  Command* c = app.add_subcommand("average", "Average the weights of several models");
  c->add_option("DIR", o->dirs, "Model directories or runs with the same architecture and tokenizer")
      ->required();
  c->add_option("--out", o->out, "Directory to write; must not exist")->required();
  c->add_option("--last", o->last, "Use this many of the newest checkpoints of each run (see train.keep)")
      ->range(1, 1 << 20);
  c->footer(
      "Checkpoints of a run's end, averaged, are often better than the last of them (Vaswani et al. 2017).\n"
      "train.ema averages while a run goes on.\n"
      "Example: qkv train my.toml --set train.keep=5 && qkv average runs/my --last 5 --out runs/my/average");
  c->callback([o] { run_average(*o); });
}

}  // namespace qkv

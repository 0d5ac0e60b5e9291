// qkv init: a configuration made by looking at data.
#include <fmt/format.h>

#include <filesystem>

#include "qkv/base/file.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/train/run/suggest_config.h"

namespace qkv {
namespace {

struct InitOptions {
  std::string kind, data, target, out, run;
  double minutes = 5;
  bool overwrite = false;
};

void run_init(const InitOptions& o) {
  const std::string path = o.out.empty() ? std::filesystem::path(o.data).stem().string() + ".toml" : o.out;
  check(o.overwrite || path == "-" || !file_exists(path),
        "{}: exists already: name another file with --out, or give --overwrite", path);
  const SuggestedConfig made = suggest_config({.data = o.data,
                                               .target = o.target,
                                               .kind = data_kind_from_name(o.kind),
                                               .out = o.run,
                                               .minutes = o.minutes});
  if (path == "-") {
    print(made.toml);
    return;
  }
  write_file_atomically(path, made.toml);
  fmt::print(stderr, "{}\n{} is written. Train with: qkv train {}\n", made.about, path, path);
}

}  // namespace

void add_init_command(Command& app) {
  auto o = std::make_shared<InitOptions>();
  Command* c = app.add_subcommand("init", "Write a configuration that fits your data");
  c->add_option("TASK", o->kind, "text, classify, tag, translate or chat")
      ->required()
      ->one_of({"text", "classify", "tag", "translate", "chat"});
  c->add_option("DATA", o->data, "File of texts (.txt), rows (.csv, .tsv, .jsonl) or tagged words (.conllu)")
      ->required();
  c->add_option("--target", o->target, "translate: file with the translations of DATA's lines");
  c->add_option("--out", o->out,
                "Configuration to write, - for standard output (default: DATA's name, .toml)");
  c->add_option("--run", o->run, "Directory of the run, train.out (default: runs/NAME of the data)");
  c->add_option("--minutes", o->minutes,
                "Training time in minutes; qkv chooses the model size and the steps to fit")
      ->range(0.001, 1e6)
      ->show_default();
  c->add_flag("--overwrite", o->overwrite, "Replace the configuration");
  c->footer(
      "qkv looks at columns, labels, script and size, and measures how fast this machine trains.\n"
      "Examples: qkv init text my.txt\n"
      "          qkv init classify reviews.csv --minutes 2 --out reviews.toml\n"
      "          qkv init translate train.en --target train.de");
  c->callback([o] { run_init(*o); });
}

}  // namespace qkv

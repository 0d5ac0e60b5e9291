// qkv merge: a model with an adapter's changes in its weights.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "qkv/base/file.h"
#include "qkv/cli/command.h"
#include "qkv/cli/gguf_output.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/auxiliary_files.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {
namespace {

struct MergeOptions {
  std::string dir, out, type;
};

void run_merge(const MergeOptions& o) {
  const std::string dir = resolve_model_dir(o.dir);
  check(is_adapter_dir(dir), "{}: it holds no adapter (expected adapter_config.json)", dir);
  check(!std::filesystem::exists(o.out), "{}: exists already", o.out);
  const bool gguf = o.out.ends_with(".gguf");
  if (!o.type.empty() && !gguf) throw UsageError("--type: is for GGUF files; --out ends in .gguf");
  expect_type(o.type);
  const auto adapted = load_model(dir, DType::f32);
  const std::string& base = adapted->spec().lora.base;
  const std::string tokens = text::Tokenizer::exists(dir) ? dir : base;
  check(text::Tokenizer::exists(tokens), "{}: there is no tokenizer here, nor in {}", dir, base);
  const text::Tokenizer tokenizer = text::Tokenizer::load(tokens);
  const auto model = merged(*adapted);
  const auto write = [&](const std::string& to) {
    save_model(to, *model, load_special_ids(dir));
    tokenizer.save(to);
    keep_auxiliary_files(dir, to);
  };
  if (gguf) {
    namespace fs = std::filesystem;
    const std::string folder = o.out + ".whole", whole = folder + "/" + fs::path(o.out).stem().string();
    check(!fs::exists(folder), "{}: exists already; it is needed for the whole model", folder);
    const auto remove = [](const std::string* path) {
      std::error_code ignored;
      fs::remove_all(*path, ignored);
    };
    const std::unique_ptr<const std::string, decltype(remove)> removed(&folder, remove);
    write_directory_atomically(whole, write);
    write_gguf_file({.from = whole, .out = o.out, .type = o.type});
  } else {
    write_directory_atomically(o.out, write);
  }
  fmt::print(stderr, "{}: {} with {} in its weights\n", o.out, base, dir);
}

}  // namespace

void add_merge_command(Command& app) {
  auto o = std::make_shared<MergeOptions>();
  Command* c = app.add_subcommand("merge", "Merge a LoRA adapter into its base model");
  c->add_option("DIR", o->dir, "Run with model.lora_rank, or directory with adapter_config.json (PEFT)")
      ->required();
  c->add_option("--out", o->out, "Directory or GGUF file to write; must not exist")->required();
  c->add_option("--type", o->type, "GGUF: mixture of types, such as q4_k_m (qkv quantize --help)");
  c->footer(
      "Adapters also run as they are, beside their model: every command takes their directory.\n"
      "A quantised base is decoded; --type quantises the sum again.\n"
      "Examples: qkv merge runs/adapted --out models/adapted\n"
      "          qkv merge runs/adapted --out adapted.gguf --type q4_k_m");
  c->callback([o] { run_merge(*o); });
}

}  // namespace qkv

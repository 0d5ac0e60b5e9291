// qkv generate: text that continues a prompt.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <random>

#include "qkv/base/file.h"
#include "qkv/cli/command.h"
#include "qkv/infer/generate.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/corpus.h"
#include "qkv/train/trainer.h"

namespace qkv {
namespace {

struct Options {
  std::string dir, prompt, file, dtype = "auto";
  bool has_prompt = false, no_prompt_echo = false, no_stop = false, has_seed = false;
  GenerateOptions generation;
};

std::string read_prompt(const Options& o) {
  if (o.has_prompt) return o.prompt;
  if (!o.file.empty()) return read_file(o.file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  check(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, "standard output cannot be written");
}

void run(Options o) {
  try {
    check_options(o.generation.sampler);
  } catch (const Error& e) {
    throw UsageError(fmt::format("--{}", e.what()));  // "--top-p must be ..."
  }
  const std::string dir = resolve_model_dir(o.dir);
  const bool bf16 = o.dtype == "bf16";
  const auto model = load_model(dir, bf16 ? DType::bf16 : DType::f32);
  const auto tokenizer = text::Tokenizer::load(dir);
  check(static_cast<int64_t>(tokenizer.vocab_size()) <= model->spec().vocab_size,
        "{}: the tokenizer has {} tokens, the model {}", dir, tokenizer.vocab_size(),
        model->spec().vocab_size);
  const std::string prompt = read_prompt(o);
  std::vector<int32_t> ids = tokenizer.encode(prompt, false).ids;
  const SpecialIds special = load_special_ids(dir);
  if (ids.empty() && special.bos >= 0) ids = {static_cast<int32_t>(special.bos)};
  check(!ids.empty(),
        "the prompt is empty, and this model has no token that begins a text: give it some text (--prompt)");
  if (!o.no_stop) o.generation.eos.assign(special.eos.begin(), special.eos.end());
  if (!o.has_seed) o.generation.seed = std::random_device{}();

  if (!o.no_prompt_echo) print(prompt);
  text::StreamDecoder decoder(tokenizer);
  generate(*model, {ids}, o.generation, [&](int64_t, int32_t token) {
    // A model's vocabulary may be padded beyond the tokenizer's.
    if (token < static_cast<int32_t>(tokenizer.vocab_size())) print(decoder.add(token));
    return true;
  });
  print(decoder.finish() + "\n");
}

}  // namespace

void add_generate_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("generate", "Continue a prompt, streaming");
  SamplerOptions& s = o->generation.sampler;
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  auto* prompt = c->add_option("--prompt", o->prompt, "Text to continue (default: standard input)");
  c->add_option("--file", o->file, "File with the text to continue")->excludes(prompt);
  c->add_option("--tokens", o->generation.max_new_tokens, "New tokens at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  c->add_option("--temperature", s.temperature,
                "0: always the most likely token; 1: faithful; large: nearly uniform")
      ->capture_default_str();
  c->add_option("--top-k", s.top_k, "Only the k most likely tokens; 0: all")->capture_default_str();
  c->add_option("--top-p", s.top_p, "Only the most likely tokens that together reach this probability")
      ->capture_default_str();
  auto* seed =
      c->add_option("--seed", o->generation.seed, "Same seed, same text (default: a new one each time)");
  c->add_option("--dtype", o->dtype, "Type of the matrix products: f32 or bf16 (default f32)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  c->add_flag("--no-echo", o->no_prompt_echo, "Print only the new text");
  c->add_flag("--no-stop", o->no_stop, "Go on after the end-of-text token");
  c->footer(
      "Example: qkv generate runs/shakespeare --prompt \"ROMEO:\" --tokens 300 --temperature 0.8 --seed 1");
  c->callback([o, prompt, seed] {
    o->has_prompt = prompt->count() > 0;
    o->has_seed = seed->count() > 0;
    run(*o);
  });
}

}  // namespace qkv

// qkv convert: models of other programs, and of older files, as model directories.
#include <fmt/format.h>

#include <filesystem>

#include "qkv/base/file.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/gguf_output.h"
#include "qkv/cli/model_notes.h"
#include "qkv/convert/ctranslate2_dir.h"
#include "qkv/convert/gguf_adapter.h"
#include "qkv/convert/llama2c.h"
#include "qkv/convert/rwkv_file.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/auxiliary_files.h"
#include "qkv/io/gguf/directory.h"
#include "qkv/models/part.h"
#include "qkv/text/tokenizer.h"

namespace qkv {
namespace {

constexpr int64_t kContext = 512;  // longest text, if positions are computed

struct ConvertOptions {
  std::string from, out, tokenizer, split = "spaces", part, type, base;
  int64_t context = kContext;
};

// Writes one stack of a model that load_model() has read from DIR, with the tokenizer of its side.
void write_part(const std::string& to, const std::string& dir, Transformer& model, Architecture stack) {
  const SpecialIds ids = load_special_ids(dir);
  save_model(to, *part_of(model, stack), ids_of_part(ids, stack));
  const auto count = [](const auto& tokens) { return tokens ? tokens->size() : 0; };
  if (stack == Architecture::encoder && count(ids.source_begin) + count(ids.source_end) > 0)
    print_notes(
        {"note: the whole model reads each source between special tokens; the encoder by itself reads "
         "those that its tokenizer adds"});
  if (!text::Tokenizer::exists(dir)) return;
  const text::Tokenizer tokenizer = text::Tokenizer::load(dir);
  (stack == Architecture::encoder ? tokenizer.of_sources() : tokenizer.without_sources()).save(to);
}

// A directory that qkv reads is written with its weights in safetensors.
void convert_directory(const ConvertOptions& o) {
  const std::string dir = resolve_model_dir(o.from);
  const auto model = load_model(dir, DType::f32);
  print_model_notes(dir, *model);
  check(!model->spec().lora.any(), "{}: it holds an adapter: qkv merge writes it into its model", dir);
  check(!file_exists(o.out), "{}: exists already", o.out);
  write_directory_atomically(o.out, [&](const std::string& to) {
    if (!o.part.empty()) return write_part(to, dir, *model, from_name<Architecture>(o.part));
    save_model(to, *model, load_special_ids(dir));
    if (text::Tokenizer::exists(dir)) text::Tokenizer::load(dir).save(to);
    keep_auxiliary_files(dir, to);
  });
}

// An adapter's directory becomes a GGUF file, or the other way.
void convert_adapter(const ConvertOptions& o) {
  check(!file_exists(o.out), "{}: exists already", o.out);
  check(o.part.empty() && o.tokenizer.empty() && o.type.empty(),
        "{}: an adapter: --part, --tokenizer and --type are for models", o.from);
  if (!is_gguf(o.from)) {
    check(o.base.empty(), "--base: {}/adapter_config.json names its model", o.from);
    save_gguf_adapter(resolve_model_dir(o.from), o.out);
  } else {
    check(!o.out.ends_with(".gguf"), "{}: is a GGUF file already: --out names a directory", o.from);
    check(!o.base.empty(), "{}: an adapter: --base names the model that it changes", o.from);
    save_adapter_of_gguf(o.from, o.base, o.out);
  }
  fmt::print(stderr, "{}: the adapter of {}\n", o.out, o.from);
}

bool is_adapter(const std::string& path) {
  if (is_gguf(path)) return is_gguf_adapter_file(path);
  return std::filesystem::is_directory(path) && !is_ctranslate2_dir(path) &&
         is_adapter_dir(resolve_model_dir(path));
}

void run_convert(const ConvertOptions& o) {
  check(file_exists(o.from), "{}: there is no such file or directory", o.from);
  if (is_gguf(o.from) != o.out.ends_with(".gguf") && is_adapter(o.from)) return convert_adapter(o);
  check(o.base.empty(), "--base: {} is no adapter in a GGUF file", o.from);
  if (o.out.ends_with(".gguf")) {
    check(o.part.empty() && o.tokenizer.empty(), "{}: --part and --tokenizer write directories", o.out);
    return write_gguf_file({.from = o.from, .out = o.out, .type = o.type});
  }
  check(o.type.empty(), "--type: only GGUF files have types: name one as --out MODEL.gguf");
  const bool directory =
      is_gguf(o.from) || (std::filesystem::is_directory(o.from) && !is_ctranslate2_dir(o.from));
  check(o.part.empty() || directory, "--part: takes a stack out of a model directory: convert {} first",
        o.from);
  if (!directory && !std::filesystem::is_directory(o.from) &&
      is_rwkv_file(MappedFile::open(o.from)->text())) {
    save_foreign(read_rwkv(o.from, o.tokenizer, o.context), o.out);
  } else if (!directory && !std::filesystem::is_directory(o.from)) {
    check(!o.tokenizer.empty(), "{}: a model of llama2.c needs its tokenizer: --tokenizer tokenizer.bin",
          o.from);
    save_foreign(read_llama2c(o.from, o.tokenizer), o.out);
  } else if (is_ctranslate2_dir(o.from)) {
    const TokenSplit split = o.split == "characters" ? TokenSplit::characters : TokenSplit::spaces;
    save_foreign(read_ctranslate2(o.from, split, o.context), o.out);
  } else {
    convert_directory(o);
  }
  const ModelSpec spec = load_spec(o.out);
  fmt::print(stderr, "{}: {} with {} layers of width {} (model_type {})\n", o.out, name_of(spec.architecture),
             spec.encoder_layers + spec.layers, spec.width, family_for(spec).model_type);
}

}  // namespace

void add_convert_command(Command& app) {
  auto o = std::make_shared<ConvertOptions>();
  Command* c =
      app.add_subcommand("convert", "Convert a model: GGUF, llama2.c, rwkv.cpp, CTranslate2, PyTorch");
  c->add_option(
       "FROM", o->from,
       "Model or adapter directory, file of GGUF, llama2.c or rwkv.cpp, or CTranslate2's directory with "
       "model.bin")
      ->required();
  c->add_option("--out", o->out, "Directory to write, or a file MODEL.gguf; must not exist")->required();
  c->add_option("--base", o->base, "GGUF adapter: the model that it changes");
  c->add_option("--type", o->type, "GGUF: type of the matrices, as of qkv quantize; default: as they are");
  c->add_option("--tokenizer", o->tokenizer,
                "llama2.c: tokenizer file (tokenizer.bin); rwkv.cpp: tokenizer.json (without it: bytes)");
  c->add_option("--split", o->split, "CTranslate2: how text becomes tokens")
      ->one_of({"spaces", "characters"});
  c->add_option("--context", o->context,
                "CTranslate2, rwkv.cpp: longest text in tokens, if nothing limits it")
      ->range(1, 1 << 24);
  c->add_option("--part", o->part, "Write only this stack of an encoder-decoder")
      ->one_of({"encoder", "decoder"});
  c->footer(
      "Hugging Face directories need no conversion: every command reads them, pytorch_model.bin included.\n"
      "GGUF files need none either. A new directory has safetensors and a tokenizer. CTranslate2's weights "
      "of 8\n"
      "and 16 bits, and quantised ones, become f32 in it, rwkv.cpp's as well. A new GGUF file has the "
      "tokenizer and the chat "
      "template.\n"
      "Adapters (PEFT) become GGUF files, too, and come back beside the model that --base names.\n"
      "Example: qkv convert models/llama --out llama.gguf\n"
      "Example: qkv convert adapter.gguf --base llama.gguf --out adapter\n"
      "Example: qkv convert rwkv.bin --out models/rwkv\n"
      "Example: qkv convert stories15M.bin --tokenizer tokenizer.bin --out models/stories");
  c->callback([o] { run_convert(*o); });
}

}  // namespace qkv

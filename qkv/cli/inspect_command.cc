// qkv inspect: what a model directory or a safetensors file holds.
#include <fmt/format.h>

#include <filesystem>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/clip_dir.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/gguf/directory.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/weights.h"
#include "qkv/models/spec_schema.h"
#include "qkv/train/run/trainer.h"

namespace qkv {
namespace {

struct InspectOptions {
  std::string path;
  bool json = false, tensors = false;
};

// 12,318,720
std::string grouped(int64_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// One line about a file's tensors; with `list`, a line each before it.
std::map<std::string, Weight> all_tensors(const TensorFile& file) {
  std::map<std::string, Weight> all(file.tensors.begin(), file.tensors.end());
  all.insert(file.packed.begin(), file.packed.end());
  return all;
}

std::string_view type_of(const Weight& weight) {
  return weight.is_packed() ? name_of(weight.type()) : name_of(weight.dense().dtype());
}

void print_tensors(const std::string& path, const TensorFile& file, bool list) {
  int64_t elements = 0, bytes = 0;
  size_t longest = 4;
  const auto all = all_tensors(file);
  for (const auto& [name, t] : all) longest = std::max(longest, name.size());
  for (const auto& [name, t] : all) {
    if (list) fmt::print("  {:<{}}  {:<6}  {}\n", name, longest, type_of(t), t.shape());
    elements += t.shape().count();
    bytes += static_cast<int64_t>(t.bytes());
  }
  fmt::print("{}: {} tensors, {} elements, {} bytes{}\n", path, all.size(), grouped(elements), grouped(bytes),
             list ? "" : " (--tensors lists them)");
  for (const auto& [key, value] : file.metadata) fmt::print("  {} = {}\n", key, value);
}

// Numbers that decoding remembers of a token in all layers.
int64_t remembered(const ModelSpec& s) {
  int64_t sum = 0;
  for (int64_t l = 0; l < s.layers; ++l)
    sum += s.block(l).mixer.cost(s.with_kind(s.kind_of(l)), s.causal()).remembered;
  return sum;
}

// The shape of a model, and every other setting that has not its default.
std::vector<FieldText> settings_to_show(const ModelSpec& s) {
  constexpr std::string_view kShape[] = {"architecture", "vocab_size", "context", "width",
                                         "layers",       "positions",  "tied"};
  constexpr std::string_view kShapeOfHeads[] = {"heads", "kv_heads", "d_qk", "d_vo"};
  constexpr std::string_view kShapeOfBlocks[] = {"hidden", "activation", "norm"};
  const bool heads = s.any_attends();
  std::vector<FieldText> shown;
  const std::vector<FieldText> defaults = field_texts(ModelSpec()), texts = field_texts(s);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto is_in = [name = std::string_view(texts[i].field.name)](const auto& names) {
      return std::ranges::find(names, name) != std::end(names);
    };
    const bool of_blocks = is_in(kShapeOfBlocks);
    const bool of_heads = is_in(kShapeOfHeads);
    if (of_heads    ? s.has_blocks() && heads
        : of_blocks ? s.has_blocks()
                    : is_in(kShape) || texts[i].text != defaults[i].text)
      shown.push_back(texts[i]);
  }
  return shown;
}

OrderedJson json_of(const TensorFile& file) {
  OrderedJson out = OrderedJson::array();
  for (const auto& [name, t] : all_tensors(file)) {
    std::vector<int64_t> shape;
    for (int i = 0; i < t.shape().rank(); ++i) shape.push_back(t.dim(i));
    out.push_back({{"name", name}, {"dtype", type_of(t)}, {"shape", shape}, {"bytes", t.bytes()}});
  }
  return out;
}

// One object: the whole configuration as qkv's own config.json says it, and the tensors of the file.
void print_json(const InspectOptions& o) {
  OrderedJson out;
  if (!std::filesystem::is_directory(o.path) && !is_gguf(o.path)) {
    out = {{"path", o.path}, {"tensors", json_of(read_safetensors(o.path))}};
  } else {
    const std::string dir = resolve_model_dir(o.path);
    check(!is_clip_dir(dir), "{}: --json describes one transformer, CLIP has two", dir);
    const ModelSpec s = load_spec(dir);
    out = {{"path", dir},
           {"model_type", family_for(s).model_type},
           {"parameters", Transformer(s).parameters().count()},
           {"config", config_of(native_family(), s)["qkv"]}};
    if (!is_adapter_dir(dir) && !weights_path(dir).empty()) {
      const ModelWeights weights = read_weights(dir);
      out["weights"] = weights.path;
      if (o.tensors) out["tensors"] = json_of(weights.file);
    }
  }
  print(out.dump() + "\n");
}

void run_inspect(const InspectOptions& o) {
  if (o.json) return print_json(o);
  const std::string& path = o.path;
  if (!std::filesystem::is_directory(path) && !is_gguf(path)) {
    check(std::filesystem::exists(path), "{}: no such file or directory", path);
    try {
      return print_tensors(path, read_safetensors(path), true);
    } catch (const Error& e) {
      if (path.ends_with(".safetensors")) throw;
      fail(
          "{}: not a safetensors file (qkv inspect takes a model directory, a run, a .gguf or .safetensors "
          "file)",
          path);
    }
  }
  const std::string dir = resolve_model_dir(path);
  if (is_clip_dir(dir)) {
    const ClipModel clip = load_clip(dir, DType::f32);
    const ModelSpec &t = clip.text->spec(), &v = clip.vision->spec();
    fmt::print("{}: clip model\n  texts       {} layers of width {}, {} tokens, a vocabulary of {}\n", dir,
               t.layers, t.width, t.context, t.vocab_size);
    fmt::print("  images      {} layers of width {}, {} x {} pixels in patches of {}\n", v.layers, v.width,
               v.features.image, v.features.image, v.features.patch);
    fmt::print("  vectors     {} wide\n", clip.text_projection.dim(0));
    const ModelWeights weights = read_weights(dir);
    return print_tensors(weights.path, weights.file, o.tensors);
  }
  const ModelSpec s = load_spec(dir);
  const Family& family = family_for(s);
  Transformer model(s);
  fmt::print("{}: {} model, {}\n", dir, family.model_type,
             s.architecture == Architecture::encoder_decoder ? "encoder-decoder"
             : s.architecture == Architecture::encoder       ? "encoder-only"
                                                             : "decoder-only");
  std::vector<std::pair<std::string, std::string>> facts = {
      {"parameters", grouped(model.parameters().count())}};
  if (s.has_blocks() && s.architecture != Architecture::encoder)
    facts.emplace_back("KV cache", fmt::format("{} values per token", remembered(s)));
  for (auto& [field, value] : settings_to_show(s)) facts.emplace_back(field.name, value);
  for (const BlockKind& kind : s.kinds)
    for (auto& [field, value] : differing_texts(kind.block, s))
      facts.emplace_back(fmt::format("{} of {}", field.name, kind.name), value);
  size_t longest = 0;
  for (const auto& [name, value] : facts) longest = std::max(longest, name.size());
  for (const auto& [name, value] : facts) fmt::print("  {:<{}}  {}\n", name, longest, value);
  if (const LoraSpec& lora = s.lora; lora.any())
    fmt::print("  adapter     rank {} beside {} products of {}, alpha {}\n", lora.rank, lora.adapters.size(),
               lora.base, lora.alpha);
  if (is_adapter_dir(dir))
    return print_tensors(dir + "/adapter_model.safetensors",
                         read_safetensors(dir + "/adapter_model.safetensors"), o.tensors);
  if (weights_path(dir).empty()) return;
  const ModelWeights weights = read_weights(dir);
  print_tensors(weights.path, weights.file, o.tensors);
}

}  // namespace

void add_inspect_command(Command& app) {
  auto o = std::make_shared<InspectOptions>();
  Command* c = app.add_subcommand("inspect", "Describe a model directory, a run or a safetensors file");
  c->add_option("PATH", o->path, "Model directory, run, or .safetensors file")->required();
  c->add_flag("--tensors", o->tensors, "Also list the tensors: name, type, shape");
  c->add_flag("--json", o->json,
              "Print one JSON object: configuration, parameters, and with --tensors the tensors");
  c->footer("Examples:\n  qkv inspect runs/shakespeare\n  qkv inspect gpt2 --json --tensors");
  c->callback([o] { run_inspect(*o); });
}

}  // namespace qkv

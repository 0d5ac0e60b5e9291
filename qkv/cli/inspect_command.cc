// qkv inspect: what a model directory or a safetensors file holds.
#include <fmt/format.h>

#include <filesystem>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/clip_dir.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/weights.h"
#include "qkv/train/trainer.h"

namespace qkv {
namespace {

struct Options {
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
void print_tensors(const std::string& path, const Safetensors& file, bool list) {
  int64_t elements = 0, bytes = 0;
  size_t longest = 4;
  for (const auto& [name, t] : file.tensors) longest = std::max(longest, name.size());
  for (const auto& [name, t] : file.tensors) {
    if (list) fmt::print("  {:<{}}  {:<4}  {}\n", name, longest, name_of(t.dtype()), t.shape().text());
    elements += t.count();
    bytes += static_cast<int64_t>(t.bytes());
  }
  fmt::print("{}: {} tensors, {} elements, {} bytes{}\n", path, file.tensors.size(), grouped(elements),
             grouped(bytes), list ? "" : " (--tensors lists them)");
  for (const auto& [key, value] : file.metadata) fmt::print("  {} = {}\n", key, value);
}

// Numbers that self-attention keeps of a token in one layer.
int64_t remembered(const AttentionSpec& a) {
  return a.latent > 0 ? a.latent + a.rotary.width : a.kv_heads * (a.d_qk + a.d_vo);
}

OrderedJson json_of(const Safetensors& file) {
  OrderedJson out = OrderedJson::array();
  for (const auto& [name, t] : file.tensors) {
    std::vector<int64_t> shape;
    for (int i = 0; i < t.shape().rank(); ++i) shape.push_back(t.dim(i));
    out.push_back({{"name", name}, {"dtype", name_of(t.dtype())}, {"shape", shape}, {"bytes", t.bytes()}});
  }
  return out;
}

// One object: the whole configuration as qkv's own config.json says it, and the tensors of the file.
void print_json(const Options& o) {
  OrderedJson out;
  if (!std::filesystem::is_directory(o.path)) {
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

void run(const Options& o) {
  if (o.json) return print_json(o);
  const std::string& path = o.path;
  if (!std::filesystem::is_directory(path)) {
    check(std::filesystem::exists(path), "{}: no such file or directory", path);
    try {
      return print_tensors(path, read_safetensors(path), true);
    } catch (const Error& e) {
      if (path.ends_with(".safetensors")) throw;
      fail("{}: not a safetensors file (qkv inspect takes a model directory, a run or a .safetensors file)",
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
  const bool both = s.architecture == Architecture::encoder_decoder;
  fmt::print("{}: {} model, {}\n", dir, family.model_type,
             both                                      ? "encoder-decoder"
             : s.architecture == Architecture::encoder ? "encoder-only"
                                                       : "decoder-only");
  fmt::print("  vocabulary  {}\n  context     {}\n  layers      {}\n  width       {}\n", s.vocab_size,
             s.context, s.layers, s.width);
  if (both && s.has_blocks()) {
    const ModelSpec encoder = s.encoder_spec();
    fmt::print("  encoder     {} layers{}\n", s.encoder_layers,
               !s.encoder.any() ? ""
                                : fmt::format(", width {}, {} heads, hidden {}", encoder.width,
                                              encoder.attention.heads, encoder.hidden));
  } else if (both) {
    fmt::print("  encoder     {} layers\n", s.encoder_layers);
  }
  if (const FeatureSpec& f = s.features; f.kind == FeatureSpec::Kind::patches)
    fmt::print("  images      {} x {} pixels of {} channels, in patches of {}\n", f.image, f.image,
               f.channels, f.patch);
  else if (f.any())
    fmt::print("  frames      {} of {} channels\n", 2 * s.encoder_spec().context, f.channels);
  if (s.source_vocab_size > 0) fmt::print("  sources     a vocabulary of {}\n", s.source_vocab_size);
  if (const RecurrenceSpec& r = s.recurrence; r.any())
    fmt::print("  recurrences encoder {}{}, decoder {}, source attention {}\n", name_of(r.encoder),
               r.bidirectional ? " (both ways)" : "", name_of(r.decoder), name_of(r.attention));
  if (s.has_blocks()) {
    fmt::print("  heads       {} ({} for keys and values), queries {} wide, values {} wide\n",
               s.attention.heads, s.attention.kv_heads, s.attention.d_qk, s.attention.d_vo);
    if (s.memory > 0) fmt::print("  memory      of {} tokens before a window\n", s.memory);
    if (!s.attention.head_sizes.empty())
      fmt::print("  head sizes  {}\n", fmt::join(s.attention.head_sizes, ", "));
    if (s.attention.latent > 0)
      fmt::print(
          "  latents     {} wide for keys and values{}\n", s.attention.latent,
          s.attention.query_latent > 0 ? fmt::format(", {} for queries", s.attention.query_latent) : "");
    fmt::print("  hidden      {}, {}{}{}\n", s.hidden, name_of(s.activation), s.gated ? ", gated" : "",
               s.hidden_layers > 1 ? fmt::format(", {} layers", s.hidden_layers) : "");
    if (const ExpertsSpec& x = s.experts; x.count > 0)
      fmt::print(
          "  experts     {} of {} hidden, {} of a token ({}){}{}\n", x.count, x.hidden, x.chosen,
          name_of(x.score),
          x.first == 0 && x.every == 1 ? "" : fmt::format(", from layer {} in every {}.", x.first, x.every),
          x.shared_hidden > 0 ? fmt::format(", beside {} for all tokens", x.shared_hidden) : "");
    if (s.attention.clip > 0) fmt::print("  clips       queries, keys and values at {}\n", s.attention.clip);
    if (s.attention.cap > 0 || s.logit_cap > 0)
      fmt::print("  caps        scores {}, logits {} (0: none)\n", s.attention.cap, s.logit_cap);
    if (s.attention.sinks) fmt::print("  sinks       one of each head\n");
    const RotarySpec& r = s.attention.rotary;
    fmt::print("  positions   {}{}\n", name_of(s.positions),
               r.width == 0 ? ""
                            : fmt::format(" ({} of {} columns, base {}{})", r.width, s.attention.d_qk, r.base,
                                          r.scaling == RotaryScaling::none
                                              ? ""
                                              : fmt::format(", {} by {}", name_of(r.scaling), r.factor)));
    if (const RelativeSpec& x = s.attention.relative; x.on())
      fmt::print("  distances   {}{}\n", name_of(x.kind),
                 x.distance == 0 ? ", of all" : fmt::format(", up to {}", x.distance));
    if (s.grid > 0)
      fmt::print("  grid        rows of {} tokens{}\n", s.grid,
                 s.axial_width > 0 ? fmt::format(", {} columns of the row", s.axial_width) : "");
    fmt::print("  norms       {}, {}{}{}\n", name_of(s.normalization), name_of(s.norm_placement),
               s.final_norm ? "" : ", none at the end",
               s.branches == Branches::serial       ? ""
               : s.branches == Branches::reversible ? ", two streams in turn"
                                                    : ", branches beside each other");
    if (const auto& shares = s.attention.shared_query_key; !shares.empty())
      fmt::print("  keys        are the queries: {} of layers in turn{}\n", fmt::join(shares, ", "),
                 s.attention.hashed_beyond > 0
                     ? fmt::format(" (sequences of {} tokens at most)", s.attention.hashed_beyond)
                     : "");
    if (!s.attention.patterns.empty())
      fmt::print("  patterns    {} in turn\n", fmt::join(texts_of(s.attention.patterns), ", "));
    if (s.architecture != Architecture::encoder)
      fmt::print("  KV cache    {} values per token\n", s.layers * remembered(s.attention));
  }
  fmt::print("  unembedding {}\n", s.tied ? "tied to the token embedding" : "its own");
  fmt::print("  parameters  {}\n", grouped(model.parameters().count()));
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
  auto o = std::make_shared<Options>();
  Command* c =
      app.add_subcommand("inspect", "Show what a model directory, a run or a safetensors file holds");
  c->add_option("PATH", o->path, "Model directory, run, or .safetensors file")->required();
  c->add_flag("--tensors", o->tensors, "List the tensors of a model, too: name, type, shape");
  c->add_flag("--json", o->json,
              "Print one JSON object: configuration, parameters, and with --tensors the tensors");
  c->footer("Examples:\n  qkv inspect runs/shakespeare\n  qkv inspect gpt2 --json --tensors");
  c->callback([o] { run(*o); });
}

}  // namespace qkv

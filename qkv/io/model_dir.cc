#include "qkv/io/model_dir.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "qkv/base/json_value.h"
#include "qkv/base/mounted_files.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/binding.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/family/language_part.h"
#include "qkv/io/gguf/directory.h"
#include "qkv/io/weights.h"
#include "qkv/models/part.h"

namespace qkv {
namespace {

std::string config_path(const std::string& dir) {
  mount_gguf(dir);
  check(is_mounted(dir) || std::filesystem::is_directory(dir),
        "{}: no such directory (expected a model directory with config.json)", dir);
  const std::string path = dir + "/config.json";
  // An adapter from another tool uses its model's config.json.
  if (!file_exists(path) && is_adapter_dir(dir)) return beside_or_base(dir, "config.json");
  check(file_exists(path), "{}: missing: {} is not a model directory", path, dir);
  return path;
}

struct ConfigFile {
  std::string path;
  Json json;
  const Family& family;
  bool multimodal = false;  // the family is that of the language model inside
};

ConfigFile parse_config(std::string_view document, const std::string& where) {
  Json json = parse_json(document, where);
  if (std::optional<Json> part = language_part(json)) {
    const std::string place = where + ": text_config";
    const Family& family = family_of(JsonField(*part, place));
    return {place, std::move(*part), family, true};
  }
  const Family& family = family_of(JsonField(json, where));
  return {where, std::move(json), family};
}

// Leaves the tensors of the language model, under its own names.
void take_language_part(TensorFile& file, std::set<std::string>& left_out) {
  std::map<std::string, Tensor> tensors;
  for (auto& [name, tensor] : file.tensors)
    if (const auto inside = name_in_language_part(name))
      tensors.emplace(*inside, std::move(tensor));
    else
      left_out.insert(part_of_tensor(name));
  file.tensors = std::move(tensors);
}

ConfigFile read_config(const std::string& dir) {
  const std::string path = config_path(dir);
  if (!is_adapter_dir(dir) || file_exists(dir + "/config.json")) return parse_config(read_file(path), path);
  Json plain = parse_json(read_file(path), path);
  if (std::optional<Json> part = language_part(plain)) plain = std::move(*part);
  Json json = config_with_head(dir, plain);
  const std::string place = json == plain ? path : dir + "/adapter_config.json: task_type: " + path;
  const Family& family = family_of(JsonField(json, place));
  return {place, std::move(json), family};
}

}  // namespace

std::string resolve_model_dir(const std::string& dir) {
  mount_gguf(dir);
  if (is_mounted(dir)) return dir;
  if (const std::string inside = dir + "/model.gguf"; is_gguf(inside)) return resolve_model_dir(inside);
  for (const std::string& candidate : {dir, dir + "/best", dir + "/last"})
    if (file_exists(candidate + "/config.json") || is_adapter_dir(candidate)) return candidate;
  if (!std::filesystem::is_directory(dir)) {
    const std::string expected =
        "Give a directory with config.json and model.safetensors, a .gguf file, or a run";
    if (std::filesystem::exists(dir)) fail("{}: is a file. {}", dir, expected);
    const bool hub_name = dir.find('/') == std::string::npos || std::count(dir.begin(), dir.end(), '/') == 1;
    fail("{}: no such directory. {}{}", dir, expected,
         hub_name && !dir.starts_with('.') && !dir.starts_with('/') && !dir.starts_with("runs")
             ? fmt::format("; qkv does not download models: huggingface-cli download {} --local-dir {}", dir,
                           dir)
             : "");
  }
  check(!file_exists(dir + "/fold-1"),
        "{}: holds the runs of a cross-validation: name one of them, e.g. {}/fold-1", dir, dir);
  fail("{}: holds no model: expected config.json here, in best/ or in last/", dir);
}

namespace {

// True if an unused tensor is a copy of an embedding or a bias, which would become stale.
bool is_copy(std::string_view name) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"lm_head.weight", "embed_tokens.weight", "embed_out.weight",
                                              "decoder.weight", "decoder.bias", "vocab_projector.weight",
                                              "proj_out.weight", "lm_loss.weight", "lm_head.out_proj.weight",
                                              "shared_head.head.weight"},
      [&](std::string_view end) { return name.ends_with(end); });
}

ModelSpec spec_of(const ConfigFile& config) {
  try {
    ModelSpec spec = spec_of(config.family, JsonField(config.json, config.path));
    check_spec(spec);  // first, because families write a line for each layer
    if (&config.family != &native_family() && &family_for(spec) != &config.family)
      spec.family = config.family.model_type;
    return spec;
  } catch (const Error& e) {  // errors of the spec itself lack the file name
    if (std::string_view(e.what()).starts_with(config.path)) throw;
    fail("{}: {}", config.path, e.what());
  }
}

}  // namespace

namespace {

// Published configurations tell of modules of multi-token prediction that not all files have.
void leave_out_missing_modules(ModelSpec& spec, const Family& family, const std::string& dir) {
  if (!spec.mtp.any() || &family == &native_family()) return;
  const std::string from = is_adapter_dir(dir) ? read_adapter_config(dir).base : dir;
  const TensorFile file = read_weights(from).file;
  const std::string end = fmt::format("layers.{}.eh_proj.weight", spec.layers);
  const auto is_it = [&](const auto& entry) { return entry.first.ends_with(end); };
  if (std::ranges::none_of(file.tensors, is_it) && std::ranges::none_of(file.packed, is_it)) spec.mtp = {};
}

}  // namespace

ModelSpec load_spec(const std::string& dir) {
  const ConfigFile config = read_config(dir);
  ModelSpec spec = spec_of(config);
  leave_out_missing_modules(spec, config.family, dir);
  if (!is_adapter_dir(dir)) return spec;
  spec.lora = read_adapter_config(dir);
  spec.lora.adapters = adapters_of(spec);
  return spec;
}

ModelSpec parse_spec(std::string_view document, const std::string& where) {
  return spec_of(parse_config(document, where));
}

std::unique_ptr<Transformer> load_model(const std::string& dir, DType compute) {
  const ModelSpec spec = load_spec(dir);
  if (spec.lora.any()) {
    check(!is_adapter_dir(spec.lora.base), "{}: its model {} is an adapter itself", dir, spec.lora.base);
    const std::unique_ptr<Transformer> base = load_model(spec.lora.base, compute);
    auto adapted = std::make_unique<Transformer>(spec);
    load_adapters(dir, *adapted, *base);
    return adapted;
  }
  const ConfigFile config = read_config(dir);
  const Family& family = config.family;
  auto [path, file] = read_weights(dir);
  auto model = std::make_unique<Transformer>(spec);
  if (config.multimodal) take_language_part(file, model->parameters().left_out);
  const std::set<std::string> used =
      bind_weights(*model, weights_of(family, spec), {path, file, config.path, family.prefix}, compute);
  for (const auto& [name, tensor] : file.tensors) {
    if (used.contains(name)) continue;
    check(family.ignores(spec, name), "{}: tensor '{}' belongs to no parameter of a {} model", path, name,
          family.model_type);
    if (!is_copy(name)) model->parameters().kept[name] = tensor;
  }
  for (const auto& [name, blocks] : file.packed)
    check(used.contains(name) || family.ignores(spec, name),
          "{}: tensor '{}' belongs to no parameter of a {} model", path, name, family.model_type);
  return model;
}

std::map<std::string, int64_t> bytes_left_packed(const std::string& dir, DType compute) {
  if (is_adapter_dir(dir)) return bytes_left_packed(read_adapter_config(dir).base, compute);
  const ConfigFile config = read_config(dir);
  auto [path, file] = read_weights(dir);
  Transformer model(load_spec(dir));
  if (config.multimodal) take_language_part(file, model.parameters().left_out);
  return bytes_left_packed(model, weights_of(config.family, model.spec()),
                           {path, file, config.path, config.family.prefix}, compute);
}

std::unique_ptr<Transformer> load_part(const std::string& dir, Architecture stack, DType compute) {
  return part_of(*load_model(dir, compute), stack);
}

SpecialIds load_special_ids(const std::string& dir) {
  SpecialIds ids;
  for (const char* name : {"config.json", "generation_config.json"}) {
    const std::string path = beside_or_base(dir, name);
    if (!file_exists(path)) continue;
    Json json = parse_json(read_file(path), path);
    if (std::optional<Json> part = language_part(json)) json = std::move(*part);
    const JsonField root(json, path);
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    if (const auto id = root.find("bos_token_id")) ids.bos = id->integer(0, kMost);
    if (const auto id = root.find("decoder_start_token_id")) ids.decoder_start = id->integer(0, kMost);
    if (const auto id = root.find("forced_bos_token_id")) ids.forced_bos = id->integer(0, kMost);
    if (const auto id = root.find("pad_token_id")) ids.pad = id->integer(0, kMost);
    if (const auto list = root.find("source_begin_token_ids")) ids.source_begin = list->integers(0, kMost);
    if (const auto list = root.find("source_end_token_ids")) ids.source_end = list->integers(0, kMost);
    if (root.boolean_or("sources_as_tokenized", false)) ids.sources_as_tokenized = true;
    if (const auto id = root.find("eos_token_id"))
      ids.eos = id->json().is_array() ? id->integers(0, kMost) : std::vector<int64_t>{id->integer(0, kMost)};
    if (root.boolean_or("is_encoder_decoder", false) && ids.decoder_start < 0) {
      const auto decoder = root.find("decoder");  // T5Gemma
      const auto id = decoder ? decoder->find("bos_token_id") : std::nullopt;
      ids.decoder_start = ids.bos < 0 && id ? id->integer(0, kMost) : ids.bos;
    }
    // qkv writes generation_config.json with every model that it trains. A native model without one was
    // converted, and was trained with only the tokens that its tokenizer adds to a source.
    const bool converted = root.string_or("model_type", "") == "qkv" &&
                           !file_exists(beside_or_base(dir, "generation_config.json"));
    if (converted && !ids.source_end) ids.sources_as_tokenized = true;
  }
  return ids;
}

SpecialIds ids_of_part(const SpecialIds& ids, Architecture stack) {
  if (stack == Architecture::encoder) return {.pad = ids.pad};
  return {.bos = ids.decoder_start >= 0 ? ids.decoder_start : ids.bos, .pad = ids.pad, .eos = ids.eos};
}

std::vector<std::pair<std::string, Tensor>> named_tensors(const Transformer& model,
                                                          Tensor (*pick)(const Parameter&)) {
  return tensors_in_file(model, weights_of(family_for(model.spec()), model.spec()), pick);
}

void save_model(const std::string& dir, const Transformer& model, const SpecialIds& ids) {
  OrderedJson config = config_of(family_for(model.spec()), model.spec());
  OrderedJson generation = OrderedJson::object();
  const auto add = [&](const char* key, int64_t id) {
    if (id < 0) return;
    if (!config.contains(key)) config[key] = id;  // RoBERTa's padding id determines its first position
    generation[key] = id;
  };
  add("bos_token_id", ids.bos);
  if (ids.eos.size() == 1)
    add("eos_token_id", ids.eos[0]);
  else if (!ids.eos.empty())
    config["eos_token_id"] = generation["eos_token_id"] = ids.eos;
  add("pad_token_id", ids.pad);
  add("decoder_start_token_id", ids.decoder_start);
  if (ids.source_begin) config["source_begin_token_ids"] = *ids.source_begin;
  if (ids.source_end) config["source_end_token_ids"] = *ids.source_end;
  if (ids.sources_as_tokenized) config["sources_as_tokenized"] = true;
  write_file_atomically(dir + "/config.json", config.dump(2) + "\n");
  write_file_atomically(dir + "/generation_config.json", generation.dump(2) + "\n");
  if (model.spec().lora.any()) return save_adapters(dir, model);
  const Family& family = family_for(model.spec());
  auto tensors = weights_to_write(model, weights_of(family, model.spec()));
  if (family.copies != nullptr)
    for (const TensorCopy& copy : family.copies(model.spec())) {
      const auto original =
          std::ranges::find(tensors, copy.of, [](const auto& tensor) { return tensor.first; });
      check(original != tensors.end(), "save: there is no tensor '{}'", copy.of);
      tensors.emplace_back(copy.name, Tensor(original->second));
    }
  write_safetensors(dir + "/model.safetensors", tensors, {{"format", "pt"}});
}

}  // namespace qkv

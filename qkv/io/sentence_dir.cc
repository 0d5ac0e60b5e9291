#include "qkv/io/sentence_dir.h"

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/io/binding.h"
#include "qkv/io/family/family_parts.h"
#include "qkv/io/weights.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

// A module's class without the package: sentence_transformers.models.Pooling, or in newer files a longer
// path.
std::string class_of(const JsonField& module) {
  const std::string type = module["type"].string();
  return type.substr(type.rfind('.') + 1);
}

Json config_at(const std::string& path) {
  return parse_json(read_file(path), path);
}

Pooling read_pooling(const std::string& dir) {
  const std::string path = dir + "/config.json";
  const Json json = config_at(path);
  const JsonField c(json, path);
  check(c.boolean_or("include_prompt", true), "{}: include_prompt: only true is supported", path);
  constexpr std::pair<const char*, Pooling> kModes[] = {{"pooling_mode_cls_token", Pooling::first},
                                                        {"pooling_mode_mean_tokens", Pooling::mean},
                                                        {"pooling_mode_lasttoken", Pooling::last}};
  std::optional<Pooling> pooling;
  for (const auto& [name, value] : c.object().items()) {
    if (!name.starts_with("pooling_mode_") || !c.boolean_or(name, false)) continue;
    check(!pooling, "{}: {}: several ways of pooling at once are not supported", path, name);
    for (const auto& [mode, how] : kModes)
      if (name == mode) pooling = how;
    check(pooling.has_value(), "{}: {} is not supported (cls_token, mean_tokens and lasttoken are)", path,
          name);
  }
  if (const auto mode = c.find("pooling_mode"); mode && !pooling) {  // newer files
    const std::string& name = mode->string();
    check(name == "cls" || name == "mean" || name == "lasttoken",
          "{}: pooling_mode: '{}' is not supported (cls, mean and lasttoken are)", path, name);
    pooling = name == "cls" ? Pooling::first : name == "mean" ? Pooling::mean : Pooling::last;
  }
  check(pooling.has_value(), "{}: it names no way of pooling", path);
  return *pooling;
}

Activation read_activation_class(const JsonField& c) {
  const auto name = c.string_or("activation_function", "torch.nn.modules.activation.Tanh");
  constexpr std::pair<const char*, Activation> kClasses[] = {
      {".Identity", Activation::identity}, {".Tanh", Activation::tanh}, {".ReLU", Activation::relu},
      {".GELU", Activation::gelu},         {".SiLU", Activation::silu}, {".Sigmoid", Activation::sigmoid}};
  for (const auto& [end, activation] : kClasses)
    if (name.ends_with(end)) return activation;
  fail("{}: activation_function: '{}' is not supported (Identity, Tanh, ReLU, GELU, SiLU, Sigmoid are)",
       c.place(), name);
}

SentenceLayer read_layer(const std::string& dir) {
  const std::string path = dir + "/config.json";
  const Json json = config_at(path);
  const JsonField c(json, path);
  const ModelWeights weights = read_weights(dir);
  const auto tensor = [&](const char* name, const Shape& shape) {
    const auto found = weights.file.tensors.find(name);
    check(found != weights.file.tensors.end(), "{}: tensor '{}' is missing", weights.path, name);
    check(found->second.shape() == shape, "{}: {}: expected {} by {}, got {}", weights.path, name, shape,
          path, found->second.shape());
    return floating(found->second, DType::f32, weights.path + ": tensor '" + name + "'");
  };
  const int64_t in = c["in_features"].integer(1, kMost), out = c["out_features"].integer(1, kMost);
  SentenceLayer layer{tensor("linear.weight", {out, in}), {}, read_activation_class(c)};
  if (c.boolean_or("bias", true)) layer.bias = tensor("linear.bias", {out});
  return layer;
}

void read_settings(const std::string& dir, SentenceModules& m) {
  if (const std::string path = m.transformer + "/sentence_bert_config.json"; file_exists(path)) {
    const Json json = config_at(path);
    const JsonField c(json, path);
    m.longest = c.integer_or("max_seq_length", 0, 1, kMost);
    check(!c.boolean_or("do_lower_case", false),
          "{}: do_lower_case: only false is supported (a tokenizer says it itself)", path);
  }
  if (const std::string path = dir + "/config_sentence_transformers.json"; file_exists(path)) {
    const Json json = config_at(path);
    const JsonField c(json, path);
    if (const auto prompts = c.find("prompts"))
      for (const auto& [name, text] : prompts->object().items()) m.prompts[name] = (*prompts)[name].string();
    m.default_prompt = c.string_or("default_prompt_name", "");
    check(m.default_prompt.empty() || m.prompts.contains(m.default_prompt),
          "{}: default_prompt_name: there is no prompt '{}'", path, m.default_prompt);
  }
}

}  // namespace

std::optional<SentenceModules> read_sentence_modules(const std::string& dir) {
  const std::string path = dir + "/modules.json";
  if (!file_exists(path)) return {};
  const Json json = config_at(path);
  const JsonField list(json, path);
  SentenceModules m;
  bool pools = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonField module = list.at(i);
    const std::string type = class_of(module), folder = module.string_or("path", "");
    check(folder.find("..") == std::string::npos && !folder.starts_with('/'), "{}: path: '{}' leaves {}",
          module.place(), folder, dir);
    const std::string at = folder.empty() ? dir : dir + "/" + folder;
    check((type == "Transformer") == (i == 0), "{}: type: {}", module.place(),
          i == 0 ? "expected a Transformer first" : "a second Transformer is not supported");
    check(i == 0 || pools != (type == "Pooling"),
          "{}: type: expected one Pooling, right behind the Transformer", module.place());
    check(!m.normalized, "{}: type: no module behind a Normalize is supported", module.place());
    if (type == "Transformer")
      m.transformer = at;
    else if (type == "Pooling")
      m.pooling = read_pooling(at), pools = true;
    else if (type == "Dense")
      m.layers.push_back(read_layer(at));
    else if (type == "Normalize")
      m.normalized = true;
    else
      fail("{}: type: '{}' is not supported (Transformer, Pooling, Dense and Normalize are)", module.place(),
           module["type"].string());
  }
  check(pools, "{}: there is no Pooling", path);
  read_settings(dir, m);
  return m;
}

Tensor sentence_vectors(const SentenceModules& m, const Tensor& pooled) {
  Tensor x = pooled;
  for (const SentenceLayer& layer : m.layers)
    x = activation(layer.activation, linear(x, layer.weight, layer.bias));
  return m.normalized ? unit_rows(x) : x;
}

std::string prompt_of(const SentenceModules& m, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (const auto found = m.prompts.find(name); found != m.prompts.end()) return found->second;
  const auto found = m.prompts.find(m.default_prompt);
  return found == m.prompts.end() ? "" : found->second;
}

}  // namespace qkv

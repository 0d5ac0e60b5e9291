#include "qkv/io/adapter_dir.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/binding.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/family/family.h"
#include "qkv/io/gguf/directory.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/weights.h"
#include "qkv/ops/dequantize.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

constexpr const char* kConfig = "/adapter_config.json";
constexpr const char* kWeights = "/adapter_model.safetensors";
constexpr const char* kPickledWeights = "/adapter_model.bin";  // in older directories
constexpr const char* kAllLinear = "all-linear";
constexpr const char* kPrefix = "base_model.model.";

std::string weights_of_adapter(const std::string& dir) {
  return dir +
         (!file_exists(dir + kWeights) && file_exists(dir + kPickledWeights) ? kPickledWeights : kWeights);
}

// A product with its name in the family's files.
struct Module {
  std::string name;
  AdapterSpec place;  // without rank and scale
  std::vector<int64_t> row_order;
};

std::vector<Module> modules_of(const ModelSpec& given) {
  ModelSpec spec = given;
  spec.lora = {};
  spec.mtp = {};  // adapters are of the model's own layers
  const Transformer model(spec);
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter& p : model.parameters().all()) parameters[p.name] = &p;
  std::vector<Module> out;
  constexpr std::string_view kEnd = ".weight";
  for (const WeightName& w : weights_of(family_for(spec), spec)) {
    const Parameter& p = *parameters.at(w.engine);
    if (!p.product || !w.file.ends_with(kEnd)) continue;
    const int64_t rows = w.rows > 0 ? w.rows : p.shape[0];
    Module m;
    m.name = w.file.substr(0, w.file.size() - kEnd.size());
    m.place.parameter = p.name;
    m.place.first_row = w.first_row;
    m.place.rows = rows;
    m.row_order = w.row_order;
    out.push_back(std::move(m));
  }
  return out;
}

bool is_meant(const std::string& target, const Module& module) {
  if (target == kAllLinear) return module.place.parameter.find(".block.") != std::string::npos;
  return module.name == target || module.name.ends_with("." + target);
}

// Names and places of the adapters' tensors: A and B of each adapted module.
struct Entry {
  std::string module, a, b;
  AdapterSpec spec;
  std::vector<int64_t> row_order;
};
std::vector<Entry> entries_of(const ModelSpec& spec) {
  std::vector<Entry> out;
  const std::vector<Module> modules = modules_of(spec);
  for (const AdapterSpec& a : spec.lora.adapters) {
    const auto module = std::ranges::find_if(modules, [&](const Module& m) {
      return m.place.parameter == a.parameter && m.place.first_row == a.first_row;
    });
    check(module != modules.end(), "adapter: no file has a name for rows of '{}'", a.parameter);
    const std::string name = kPrefix + module->name;
    out.push_back({module->name, name + ".lora_A.weight", name + ".lora_B.weight", a, module->row_order});
  }
  return out;
}

// Row i of the result is row order[i] of x; `back` inverts the order.
Tensor ordered(const Tensor& x, const std::vector<int64_t>& order, bool back) {
  if (order.empty()) return x;
  check(std::ssize(order) == x.rows(), "adapter: an order of {} rows for {}", order.size(), x.rows());
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  for (int64_t i = 0; i < std::ssize(order); ++i)
    copy_rows(x, back ? i : order[i], 0, 1, out, back ? order[i] : i);
  return out;
}

Tensor as_f32(const Tensor& x, const std::string& at, const Shape& shape) {
  check(x.shape() == shape, "{}: expected {}, got {}", at, shape, x.shape());
  check(x.dtype() == DType::f32 || x.dtype() == DType::bf16 || x.dtype() == DType::f16,
        "{}: expected floating-point weights, got {}", at, name_of(x.dtype()));
  if (x.dtype() != DType::f16) return convert(x, DType::f32);
  Tensor out = Tensor::empty(shape, DType::f32);
  std::ranges::transform(x.values<Float16>(), out.mutable_values<float>().begin(),
                         [](Float16 h) { return float_from_f16(h.bits); });
  return out;
}

// The tensors of an adapter's directory, each taken once.
class AdapterFile {
 public:
  explicit AdapterFile(const std::string& dir) : path_(weights_of_adapter(dir)), file_(read_tensors(path_)) {}

  const std::string& path() const { return path_; }
  bool has(const std::string& name) const { return file_.tensors.contains(name); }
  Tensor take(const std::string& name, const Shape& shape) {
    const auto it = file_.tensors.find(name);
    check(it != file_.tensors.end(), "{}: tensor '{}' is missing", path_, name);
    Tensor x = as_f32(it->second, path_ + ": tensor '" + name + "'", shape);
    file_.tensors.erase(it);
    return x;
  }
  // Throws Error naming a tensor that was not taken, and `why` it should have been.
  void expect_empty(const char* why) const {
    if (!file_.tensors.empty()) fail("{}: tensor '{}' {}", path_, file_.tensors.begin()->first, why);
  }

 private:
  std::string path_;
  TensorFile file_;
};

const char* task_of(const ModelSpec& s) {
  if (s.architecture == Architecture::encoder_decoder) return "SEQ_2_SEQ_LM";
  switch (s.output) {
    case Output::sequence_classes:
      return "SEQ_CLS";
    case Output::token_classes:
      return "TOKEN_CLS";
    case Output::span:
      return "QUESTION_ANS";
    case Output::embedding:
      return "FEATURE_EXTRACTION";
    case Output::tokens:
      break;
  }
  return s.architecture == Architecture::decoder ? "CAUSAL_LM" : "FEATURE_EXTRACTION";
}

}  // namespace

namespace {

// Throws Error for unknown options that are set, because they may change the computation.
void refuse_others(const JsonField& c) {
  static constexpr std::string_view kKnown[] = {
      "peft_type",    "task_type",      "base_model_name_or_path", "r",
      "lora_alpha",   "lora_dropout",   "target_modules",          "modules_to_save",
      "bias",         "fan_in_fan_out", "inference_mode",          "use_rslora",
      "rank_pattern", "alpha_pattern",  "init_lora_weights",       "auto_mapping",
      "revision",     "megatron_core",  "megatron_config",         "peft_version",
      "loftq_config", "runtime_config", "qalora_group_size",       "eva_config",
      "corda_config", "arrow_config",   "ensure_weight_tying"};
  for (auto it = c.object().begin(); it != c.object().end(); ++it) {
    const Json& value = it.value();
    const bool says_nothing =
        value.is_null() || value == false || value == "" || (value.is_structured() && value.empty());
    check(says_nothing || std::ranges::find(kKnown, it.key()) != std::end(kKnown), "{}: {}: not supported",
          c.place(), it.key());
  }
  // Other initializations also change the model's own weights.
  if (const auto start = c.find("init_lora_weights"); start && start->json().is_string()) {
    static constexpr std::string_view kOfChanges[] = {"gaussian", "eva", "orthogonal"};
    check(std::ranges::find(kOfChanges, start->string()) != std::end(kOfChanges),
          "{}: init_lora_weights: '{}' is not supported: save the adapter converted to one of the unchanged "
          "model",
          c.place(), start->string());
  }
}

// The entries of a pattern in the file's order; their names are module names or ends of these.
std::vector<std::pair<std::string, JsonField>> pattern_of(const JsonField& c, const OrderedJson& file,
                                                          const char* key) {
  std::vector<std::pair<std::string, JsonField>> out;
  const auto pattern = c.find(key);
  if (!pattern) return out;
  pattern->object();
  for (const auto& [name, value] : file[key].items()) {
    check(name.find_first_of("^$*+?()[]{}|\\") == std::string::npos,
          "{}: '{}': expected the name of a module, or its end (no regular expression)", pattern->place(),
          name);
    out.emplace_back(name, (*pattern)[name]);
  }
  return out;
}

// The value of a pattern for a module: that of the first matching name.
template <typename T>
T of_module(const std::vector<std::pair<std::string, T>>& pattern, const std::string& module, T otherwise) {
  for (const auto& [name, value] : pattern)
    if (module == name || module.ends_with("." + name)) return value;
  return otherwise;
}

}  // namespace

bool is_adapter_dir(const std::string& dir) {
  return file_exists(dir + kConfig);
}

std::string beside_or_base(const std::string& dir, const std::string& name) {
  const std::string path = dir + "/" + name;
  if (file_exists(path) || !is_adapter_dir(dir)) return path;
  return read_adapter_config(dir).base + "/" + name;
}

LoraSpec read_adapter_config(const std::string& dir) {
  const std::string path = dir + kConfig;
  const std::string text = read_file(path);
  const Json json = parse_json(text, path);
  const OrderedJson file = OrderedJson::parse(text);
  const JsonField c(json, path);
  const std::string type = c.string_or("peft_type", "LORA");
  check(type == "LORA", "{}: peft_type: '{}' is not supported (LORA is)", path, type);
  check(c.string_or("bias", "none") == "none", "{}: bias: only none is supported", path);
  refuse_others(c);
  LoraSpec lora;
  lora.rank = c["r"].integer(1, 1 << 16);
  lora.alpha = c.number_or("lora_alpha", 8);
  lora.rank_stabilized = c.boolean_or("use_rslora", false);
  for (const auto& [name, field] : pattern_of(c, file, "rank_pattern"))
    lora.ranks.emplace_back(name, field.integer(1, 1 << 16));
  for (const auto& [name, field] : pattern_of(c, file, "alpha_pattern"))
    lora.alphas.emplace_back(name, static_cast<float>(field.number()));
  lora.dropout = c.number_or("lora_dropout", 0);
  const JsonField targets = c["target_modules"];
  if (targets.json().is_string()) {
    check(targets.string() == kAllLinear, "{}: target_modules: expected a list, or \"{}\"", path, kAllLinear);
    lora.targets = {kAllLinear};
  } else {
    for (size_t i = 0; i < targets.size(); ++i) lora.targets.push_back(targets.at(i).string());
    std::ranges::sort(lora.targets);
  }
  lora.base = c["base_model_name_or_path"].string();
  check(!lora.base.empty(), "{}: base_model_name_or_path: expected the model's directory", path);
  const std::string beside = dir + "/" + lora.base;
  const auto is_model = [](const std::string& at) {
    return std::filesystem::is_directory(at) || is_gguf(at);
  };
  if (!is_model(lora.base) && is_model(beside)) lora.base = beside;
  check(is_model(lora.base),
        "{}: base_model_name_or_path: '{}' is neither a directory nor a .gguf file: put the model there, or "
        "name "
        "where it is",
        path, lora.base);
  lora.base = std::filesystem::absolute(lora.base).lexically_normal().string();
  mount_gguf(lora.base);
  return lora;
}

std::vector<AdapterSpec> adapters_of(const ModelSpec& spec) {
  const LoraSpec& lora = spec.lora;
  std::vector<AdapterSpec> out;
  const std::vector<Module> modules = modules_of(spec);
  std::vector<bool> taken(modules.size(), false);
  for (const std::string& target : lora.targets) {
    bool any = false;
    for (size_t i = 0; i < modules.size(); ++i)
      if (is_meant(target, modules[i])) taken[i] = any = true;
    check(any,
          "lora_targets (target_modules): '{}' is no product of the model's blocks or its head (they are "
          "such as '{}'; "
          "embeddings, and an unembedding that is tied to them, are none)",
          target, modules.empty() ? "none" : modules.front().name);
  }
  for (size_t i = 0; i < modules.size(); ++i) {
    if (!taken[i]) continue;
    AdapterSpec a = modules[i].place;
    a.rank = of_module(lora.ranks, modules[i].name, lora.rank);
    const auto rank = static_cast<float>(a.rank);
    a.scale =
        of_module(lora.alphas, modules[i].name, lora.alpha) / (lora.rank_stabilized ? std::sqrt(rank) : rank);
    a.dropout = lora.dropout;
    out.push_back(std::move(a));
  }
  return out;
}

Json config_with_head(const std::string& dir, Json config) {
  const std::string path = dir + kConfig;
  const Json adapter = parse_json(read_file(path), path);
  const std::string task = JsonField(adapter, path).string_or("task_type", "");
  const std::string head = task == "SEQ_CLS"        ? "ForSequenceClassification"
                           : task == "TOKEN_CLS"    ? "ForTokenClassification"
                           : task == "QUESTION_ANS" ? "ForQuestionAnswering"
                                                    : "";
  if (head.empty() || !config.contains("architectures") || !config["architectures"].is_array() ||
      config["architectures"].empty() || !config["architectures"][0].is_string())
    return config;
  std::string name = config["architectures"][0];
  if (name.ends_with(head)) return config;
  for (const std::string_view other :
       {"ForMaskedLM", "ForPreTraining", "LMHeadModel", "ForCausalLM", "Model"})
    if (name.ends_with(other)) {
      name.resize(name.size() - other.size());
      break;
    }
  config["architectures"] = {name + head};
  if (task == "QUESTION_ANS") return config;
  // The number of classes of the adapter's own head: that of the narrowest product that is no adapter.
  int64_t classes = 0;
  for (const auto& [tensor, value] : read_tensors(weights_of_adapter(dir)).tensors)
    if (tensor.ends_with(".weight") && tensor.find(".lora_") == std::string::npos &&
        value.shape().rank() == 2 && (classes == 0 || value.dim(0) < classes))
      classes = value.dim(0);
  check(classes > 0, "{}: task_type {} needs a head: {}{} has none", path, task, dir, kWeights);
  config.erase("id2label");
  config.erase("label2id");
  config["num_labels"] = classes;
  return config;
}

void load_adapters(const std::string& dir, Transformer& model, const Transformer& base) {
  AdapterFile file(dir);
  Parameters& parameters = model.parameters();
  for (const Entry& e : entries_of(model.spec())) {
    Parameter &a = *parameters.find(Adapters::name_of_a(e.spec)),
              &b = *parameters.find(Adapters::name_of_b(e.spec));
    a.value = file.take(e.a, a.shape);
    b.value = ordered(file.take(e.b, b.shape), e.row_order, false);
  }
  // Other trained weights: a head.
  const std::vector<WeightName> names = weights_of(family_for(model.spec()), model.spec());
  for (const WeightName& w : names) {
    Parameter& p = *parameters.find(w.engine);
    const std::string name = kPrefix + w.file;
    if (w.rows == 0 && !w.transposed && w.shape.empty() && file.has(name)) p.value = file.take(name, p.shape);
  }
  file.expect_empty("belongs to no parameter of this model");
  const DType compute = parameters.compute = base.parameters().compute;
  for (Parameter& p : parameters.all()) {
    if (p.value.defined()) {
      if (p.kind == ParameterKind::matrix) p.value = convert(p.value, compute);
      continue;
    }
    const auto& all = base.parameters().all();
    const auto from = std::ranges::find(all, p.name, [](const Parameter& q) { return q.name; });
    if (from == all.end()) {  // weights of a head that the base keeps without using it
      const auto name = std::ranges::find(names, p.name, &WeightName::engine);
      const auto kept =
          name == names.end() ? base.parameters().kept.end() : base.parameters().kept.find(name->file);
      if (kept != base.parameters().kept.end() && kept->second.shape() == p.shape) {
        p.value = as_f32(kept->second, name->file, p.shape);
        if (p.kind == ParameterKind::matrix) p.value = convert(p.value, compute);
        p.frozen = true;
        continue;
      }
    }
    check(from != all.end() && from->shape == p.shape, "{}: tensor for '{}' is missing, and {} has none",
          file.path(), p.name, model.spec().lora.base);
    p.value = from->value;
    p.packed = from->packed;
    p.frozen = true;
  }
}

std::shared_ptr<const AdapterWeights> load_adapter_weights(const std::string& dir, const Transformer& model) {
  check(is_adapter_dir(dir), "{}: is no directory of an adapter: it has no adapter_config.json", dir);
  ModelSpec spec = model.spec();
  check(!spec.lora.any(), "{}: the model has an adapter already", dir);
  spec.lora = read_adapter_config(dir);
  spec.lora.adapters = adapters_of(spec);
  AdapterFile file(dir);
  const auto& parameters = model.parameters().all();
  auto weights = std::make_shared<AdapterWeights>();
  for (const Entry& e : entries_of(spec)) {
    const AdapterSpec& s = e.spec;
    const auto p = std::ranges::find(parameters, s.parameter, &Parameter::name);
    const DType compute = model.parameters().compute;
    weights->add(s.parameter,
                 {.first_row = s.first_row,
                  .a = convert(file.take(e.a, {s.rank, p->shape[1]}), compute),
                  .b = convert(ordered(file.take(e.b, {s.rows, s.rank}), e.row_order, false), compute),
                  .scale = s.scale});
  }
  file.expect_empty("is no product of the model that it is loaded for");
  return weights;
}

namespace {

// Writes both files: the adapter's tensors, and those of the `heads`, modules that were trained as a whole.
void write_files(const std::string& dir, const ModelSpec& spec,
                 const std::vector<std::pair<std::string, Tensor>>& tensors,
                 const std::vector<std::string>& heads) {
  const LoraSpec& lora = spec.lora;
  OrderedJson config = {{"peft_type", "LORA"},
                        {"task_type", task_of(spec)},
                        {"base_model_name_or_path", lora.base},
                        {"r", lora.rank},
                        {"lora_alpha", decimal(lora.alpha)},
                        {"lora_dropout", decimal(lora.dropout)},
                        {"target_modules", lora.targets},
                        {"modules_to_save", heads.empty() ? OrderedJson(nullptr) : OrderedJson(heads)},
                        {"use_rslora", lora.rank_stabilized},
                        {"rank_pattern", OrderedJson::object()},
                        {"alpha_pattern", OrderedJson::object()},
                        {"bias", "none"},
                        {"fan_in_fan_out", false},
                        {"inference_mode", true}};
  for (const auto& [name, rank] : lora.ranks) config["rank_pattern"][name] = rank;
  for (const auto& [name, alpha] : lora.alphas) config["alpha_pattern"][name] = decimal(alpha);
  if (lora.targets == std::vector<std::string>{kAllLinear}) config["target_modules"] = kAllLinear;
  for (const WeightName& w : weights_of(family_for(spec), spec))
    if (w.transposed) config["fan_in_fan_out"] = true;
  write_file_atomically(dir + kConfig, config.dump(2) + "\n");
  write_safetensors(dir + kWeights, tensors, {{"format", "pt"}});
}

}  // namespace

void save_adapters(const std::string& dir, const Transformer& model) {
  const ModelSpec& spec = model.spec();
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter& p : model.parameters().all()) parameters[p.name] = &p;
  const auto value = [](const Parameter& p) { return convert(trained_value(p).detach(), DType::f32); };
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Entry& e : entries_of(spec)) {
    tensors.emplace_back(e.a, value(*parameters.at(Adapters::name_of_a(e.spec))));
    tensors.emplace_back(e.b, ordered(value(*parameters.at(Adapters::name_of_b(e.spec))), e.row_order, true));
  }
  std::vector<std::string> heads;
  for (const WeightName& w : weights_of(family_for(spec), spec)) {
    const Parameter& p = *parameters.at(w.engine);
    if (p.frozen || Adapters::is_adapter(p.name)) continue;
    check(w.rows == 0 && !w.transposed && w.shape.empty(), "adapter: '{}' cannot be saved beside one",
          w.file);
    tensors.emplace_back(kPrefix + w.file, value(p));
    const std::string module = w.file.substr(0, w.file.rfind('.'));
    if (std::ranges::find(heads, module) == heads.end()) heads.push_back(module);
  }
  write_files(dir, spec, tensors, heads);
}

std::vector<AdapterModule> read_adapter_modules(const std::string& dir) {
  AdapterFile file(dir);
  const Transformer model(load_spec(dir));
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter& p : model.parameters().all()) parameters[p.name] = &p;
  std::vector<AdapterModule> out;
  for (const Entry& e : entries_of(model.spec()))
    out.push_back({e.module, file.take(e.a, parameters.at(Adapters::name_of_a(e.spec))->shape),
                   file.take(e.b, parameters.at(Adapters::name_of_b(e.spec))->shape), e.spec.scale});
  file.expect_empty("is no adapter's: qkv merge writes a whole model");
  return out;
}

void write_adapter_modules(const std::string& dir, const ModelSpec& spec,
                           const std::vector<AdapterModule>& modules) {
  const Transformer model(spec);
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter& p : model.parameters().all()) parameters[p.name] = &p;
  std::vector<std::pair<std::string, Tensor>> tensors;
  const std::vector<Entry> entries = entries_of(spec);
  for (const Entry& e : entries) {
    const auto m = std::ranges::find(modules, e.module, &AdapterModule::name);
    check(m != modules.end(), "adapter: there are no tensors for '{}'", e.module);
    const auto add = [&](const std::string& name, const Tensor& x, const std::string& parameter) {
      const Shape& shape = parameters.at(parameter)->shape;
      check(x.shape() == shape, "adapter: '{}': expected {}, got {}", name, shape, x.shape());
      tensors.emplace_back(name, x);
    };
    add(e.a, m->a, Adapters::name_of_a(e.spec));
    add(e.b, m->b, Adapters::name_of_b(e.spec));
  }
  check(entries.size() == modules.size(), "adapter: {} modules for {} places", modules.size(),
        entries.size());
  write_files(dir, spec, tensors, {});
}

std::unique_ptr<Transformer> merged(const Transformer& model) {
  ModelSpec spec = model.spec();
  spec.lora = {};
  auto out = std::make_unique<Transformer>(spec);
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter& p : model.parameters().all()) parameters[p.name] = &p;
  for (Parameter& p : out->parameters().all())
    p.value = dequantized(parameters.at(p.name)->weight(), DType::f32).clone();
  for (const AdapterSpec& s : model.spec().lora.adapters) {
    const Tensor a = convert(parameters.at(Adapters::name_of_a(s))->value.detach(), DType::f32),
                 b = convert(parameters.at(Adapters::name_of_b(s))->value.detach(), DType::f32);
    Tensor& w = out->parameters().find(s.parameter)->value;
    const int64_t in = w.width();
    for (int64_t r = 0; r < s.rows; ++r) {
      const auto to = w.mutable_row<float>(s.first_row + r).first(in);
      for (int64_t k = 0; k < s.rank; ++k) {
        const float factor = s.scale * b.row<float>(r)[k];
        const auto from = a.row<float>(k).first(in);
        for (int64_t c = 0; c < in; ++c) to[c] += factor * from[c];
      }
    }
  }
  return out;
}

}  // namespace qkv

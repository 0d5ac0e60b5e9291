#include "qkv/train/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "qkv/base/file.h"
#include "qkv/base/suggest.h"

namespace qkv {
namespace {

template <typename... Args>
[[noreturn]] void usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

// Where a value was given: FILE:LINE, or --set; FILE alone for what is not given.
std::string place_of(const toml::node* node, const std::string& file) {
  if (node == nullptr) return file;
  const toml::source_region& source = node->source();
  return source.path && *source.path == file ? fmt::format("{}:{}", file, source.begin.line) : "--set";
}

// One table; remembers which keys were asked for, so that the rest can be refused.
class Section {
 public:
  Section(const toml::table& root, std::string name, std::string file)
      : name_(std::move(name)), file_(std::move(file)) {
    const toml::node* node = root.get(name_);
    if (node == nullptr) return;
    table_ = node->as_table();
    if (table_ == nullptr) usage("{}: {}: expected a table [{}]", place_of(node, file_), name_, name_);
  }

  bool has(const char* key) const { return table_ != nullptr && table_->contains(key); }

  void read(const char* key, std::string& out) { value(key, "a string", out); }
  void read(const char* key, bool& out) { value(key, "true or false", out); }
  void read(const char* key, int64_t& out, int64_t least) {
    value(key, "an integer", out);
    if (out < least) refuse(key, fmt::format("must be at least {}, got {}", least, out));
  }
  void read(const char* key, double& out, double least, double most) {
    if (const toml::node* n = find(key)) {
      const auto v = n->value<double>();  // integers too
      if (!v || !n->is_number()) refuse(key, "expected a number");
      out = *v;
    }
    if (!(out >= least && out <= most))
      refuse(key, fmt::format("must be between {} and {}, got {}", least, most, out));
  }
  void read(const char* key, float& out, double least, double most) {
    double wide = out;
    read(key, wide, least, most);
    out = static_cast<float>(wide);
  }
  // A string or a list of strings.
  void read(const char* key, std::vector<std::string>& out) {
    const toml::node* n = find(key);
    if (n == nullptr) return;
    if (const auto one = n->value_exact<std::string>()) {
      out = {*one};
      return;
    }
    const toml::array* list = n->as_array();
    if (list == nullptr) refuse(key, "expected a string or a list of strings");
    out.clear();
    for (const toml::node& e : *list) {
      const auto s = e.value_exact<std::string>();
      if (!s) refuse(key, "expected a list of strings");
      out.push_back(*s);
    }
  }
  void read_choice(const char* key, std::string& out, const std::vector<std::string>& choices) {
    read(key, out);
    if (std::find(choices.begin(), choices.end(), out) == choices.end())
      refuse(key, fmt::format("expected one of {}, got '{}'", fmt::join(choices, ", "), out));
  }

  // Refuses keys that nothing asked for.
  void finish() const {
    if (table_ == nullptr) return;
    for (const auto& [key, node] : *table_) {
      if (asked_.contains(std::string(key.str()))) continue;
      const std::vector<std::string_view> known(asked_.begin(), asked_.end());
      usage("{}: {}.{}: unknown key (did you mean {}?)", place_of(&node, file_), name_,
            std::string(key.str()), nearest(key.str(), known));
    }
  }

 private:
  const toml::node* find(const char* key) {
    asked_.insert(key);
    return table_ == nullptr ? nullptr : table_->get(key);
  }
  template <typename T>
  void value(const char* key, const char* expected, T& out) {
    const toml::node* n = find(key);
    if (n == nullptr) return;
    const auto v = n->value_exact<T>();
    if (!v) refuse(key, fmt::format("expected {}", expected));
    out = *v;
  }
  [[noreturn]] void refuse(const char* key, const std::string& why) const {
    const toml::node* n = table_ == nullptr ? nullptr : table_->get(key);
    usage("{}: {}.{}: {}", place_of(n, file_), name_, key, why);
  }

  std::string name_, file_;
  const toml::table* table_ = nullptr;
  std::set<std::string> asked_;
};

// "train.steps=10", the value as TOML or, failing that, as a bare string.
void apply_override(toml::table& root, const std::string& text) {
  const size_t equals = text.find('='), dot = text.find('.');
  if (equals == std::string::npos || dot == std::string::npos || dot > equals)
    usage("--set: expected section.key=value, got '{}'", text);
  const std::string section = text.substr(0, dot), key = text.substr(dot + 1, equals - dot - 1),
                    value = text.substr(equals + 1);
  toml::table parsed;
  try {
    parsed = toml::parse("value = " + value, std::string_view("--set"));
  } catch (const toml::parse_error&) {
    parsed.insert_or_assign("value", value);
  }
  if (!root.contains(section)) root.insert(section, toml::table{});
  toml::table* table = root.get(section)->as_table();
  if (table == nullptr || parsed.size() != 1) usage("--set: '{}' does not fit the configuration", text);
  table->insert_or_assign(key, std::move(*parsed.get("value")));
}

}  // namespace

TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides) {
  toml::table root;
  try {
    root = toml::parse(read_file(path), path);
  } catch (const toml::parse_error& e) {
    usage("{}:{}: {}", path, e.source().begin.line, e.description());
  }
  for (const std::string& o : overrides) apply_override(root, o);
  const std::set<std::string> sections = {"data", "tokenizer", "model", "train"};
  for (const auto& [key, node] : root)
    if (!sections.contains(std::string(key.str())))
      usage("{}: {}: unknown (expected [data], [tokenizer], [model] or [train])", place_of(&node, path),
            std::string(key.str()));

  TrainConfig c;
  Section data(root, "data", path);
  data.read("train", c.data.train);
  data.read("valid", c.data.valid);
  data.read("valid_fraction", c.data.valid_fraction, 0, 0.9);
  data.read("separator", c.data.separator);
  data.finish();
  if (c.data.train.empty()) usage("{}: data.train: missing: name the text files to train on", path);

  Section tokenizer(root, "tokenizer", path);
  tokenizer.read("path", c.tokenizer.path);
  tokenizer.read_choice("type", c.tokenizer.type, {"bpe", "char", "byte", "word"});
  tokenizer.read("vocab_size", c.tokenizer.vocab_size, 1);
  tokenizer.read("min_frequency", c.tokenizer.min_frequency, 1);
  tokenizer.finish();

  Section model(root, "model", path);
  int64_t context = 256, width = 384, layers = 6, heads = 6;
  model.read("context", context, 1);
  model.read("width", width, 1);
  model.read("layers", layers, 1);
  model.read("heads", heads, 1);
  // Heads of width / heads, unless their widths are given.
  const bool own_widths = model.has("d_qk") && model.has("d_vo");
  if (!own_widths && width % heads != 0)
    usage("{}: model.width: {} is not divisible by {} heads (or give d_qk and d_vo)", path, width, heads);
  c.model = gpt2_spec(0, context, own_widths ? heads : width, layers, heads);
  c.model.width = width;
  c.model.hidden = 4 * width;
  std::string activation = name_of(c.model.activation);
  float dropout = 0;
  model.read("hidden", c.model.hidden, 1);
  model.read_choice("activation", activation, {"relu", "gelu", "gelu_tanh"});
  model.read("dropout", dropout, 0, 0.95);
  c.model.activation = activation_from_name(activation);
  c.model.attention.dropout = c.model.embedding_dropout = c.model.residual_dropout = dropout;
  c.model.attention.kv_heads = heads;
  model.read("kv_heads", c.model.attention.kv_heads, 1);
  model.read("d_qk", c.model.attention.d_qk, 1);
  model.read("d_vo", c.model.attention.d_vo, 1);
  model.read("attention_bias", c.model.attention.bias);
  model.read("norm_epsilon", c.model.norm_epsilon, 0, 0.1);
  model.read("tied", c.model.tied);
  model.read("init_std", c.model.init_std, 0, 10);
  model.finish();
  ModelSpec complete = c.model;
  complete.vocab_size = 1;
  try {
    check_spec(complete);
  } catch (const Error& e) {
    usage("{}: {}", path, e.what());
  }

  Section train(root, "train", path);
  train.read("out", c.out);
  train.read("steps", c.steps, 1);
  train.read("batch", c.batch, 1);
  train.read("accumulate", c.accumulate, 1);
  int64_t seed = static_cast<int64_t>(c.seed);
  train.read("seed", seed, 0);
  c.seed = static_cast<uint64_t>(seed);
  train.read_choice("precision", c.precision, {"auto", "f32", "bf16"});
  train.read("recompute", c.recompute);
  train.read("log_every", c.log_every, 1);
  train.read("eval_every", c.eval_every, 1);
  train.read("eval_windows", c.eval_windows, 0);
  train.read("checkpoint_every", c.checkpoint_every, 1);
  OptimizerConfig& o = c.optimizer;
  train.read_choice("optimizer", o.name, {"adamw", "sgd"});
  train.read("learning_rate", o.learning_rate, 0, 1e6);
  o.min_learning_rate = o.learning_rate / 10;
  train.read("min_learning_rate", o.min_learning_rate, 0, 1e6);
  train.read("warmup_steps", o.warmup_steps, 0);
  train.read_choice("schedule", o.schedule, {"cosine", "constant"});
  train.read("weight_decay", o.weight_decay, 0, 100);
  train.read("beta1", o.beta1, 0, 0.9999999);
  train.read("beta2", o.beta2, 0, 0.9999999);
  train.read("epsilon", o.epsilon, 0, 1);
  train.read("clip", o.clip, 0, 1e9);
  train.finish();
  if (c.batch > std::numeric_limits<int32_t>::max() / c.model.context)
    usage("{}: train.batch: {} windows of {} tokens are more than a batch can hold", path, c.batch,
          c.model.context);
  return c;
}

namespace {

std::string toml_value(const std::string& s) {
  std::ostringstream out;
  out << toml::value<std::string>(s);  // quoted and escaped
  return out.str();
}
std::string toml_value(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& s : list) out += (out.empty() ? "" : ", ") + toml_value(s);
  return "[" + out + "]";
}
std::string toml_value(bool b) {
  return b ? "true" : "false";
}
std::string toml_value(int64_t n) {
  return std::to_string(n);
}
std::string toml_value(double x) {
  std::string s = fmt::format("{}", x);  // the shortest form that reads back as x
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

struct Setting {
  std::string section, key, value;
  bool decides;  // what the run computes
};

std::vector<Setting> settings(const TrainConfig& c) {
  std::vector<Setting> all;
  const auto put = [&](const char* section, const char* key, const auto& value, bool decides = true) {
    all.push_back({section, key, toml_value(value), decides});
  };
  put("data", "train", c.data.train);
  put("data", "valid", c.data.valid);
  put("data", "valid_fraction", c.data.valid_fraction);
  put("data", "separator", c.data.separator);
  put("tokenizer", "path", c.tokenizer.path);
  put("tokenizer", "type", c.tokenizer.type);
  put("tokenizer", "vocab_size", c.tokenizer.vocab_size);
  put("tokenizer", "min_frequency", c.tokenizer.min_frequency);
  const ModelSpec& m = c.model;
  put("model", "context", m.context);
  put("model", "width", m.width);
  put("model", "layers", m.layers);
  put("model", "heads", m.attention.heads);
  put("model", "kv_heads", m.attention.kv_heads);
  put("model", "d_qk", m.attention.d_qk);
  put("model", "d_vo", m.attention.d_vo);
  put("model", "attention_bias", m.attention.bias);
  put("model", "hidden", m.hidden);
  put("model", "activation", name_of(m.activation));
  put("model", "dropout", decimal(m.residual_dropout));
  put("model", "norm_epsilon", decimal(m.norm_epsilon));
  put("model", "tied", m.tied);
  put("model", "init_std", decimal(m.init_std));
  put("train", "out", c.out, false);
  put("train", "steps", c.steps);
  put("train", "batch", c.batch);
  put("train", "accumulate", c.accumulate);
  const OptimizerConfig& o = c.optimizer;
  put("train", "optimizer", o.name);
  put("train", "learning_rate", o.learning_rate);
  put("train", "min_learning_rate", o.min_learning_rate);
  put("train", "warmup_steps", o.warmup_steps);
  put("train", "schedule", o.schedule);
  put("train", "weight_decay", o.weight_decay);
  put("train", "beta1", o.beta1);
  put("train", "beta2", o.beta2);
  put("train", "epsilon", o.epsilon);
  put("train", "clip", o.clip);
  put("train", "precision", c.precision);
  put("train", "recompute", c.recompute, false);
  put("train", "seed", static_cast<int64_t>(c.seed));
  put("train", "log_every", c.log_every, false);
  put("train", "eval_every", c.eval_every, false);
  put("train", "eval_windows", c.eval_windows, false);
  put("train", "checkpoint_every", c.checkpoint_every, false);
  return all;
}

}  // namespace

std::string to_toml(const TrainConfig& config) {
  std::string out, section;
  for (const Setting& s : settings(config)) {
    if (s.section != section) out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section = s.section);
    out += fmt::format("{} = {}\n", s.key, s.value);
  }
  return out;
}

std::string fingerprint(const TrainConfig& config) {
  std::string out;
  for (const Setting& s : settings(config))
    if (s.decides) out += fmt::format("{}.{} = {}\n", s.section, s.key, s.value);
  return out;
}

}  // namespace qkv

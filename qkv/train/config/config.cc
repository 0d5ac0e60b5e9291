#include "qkv/train/config/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/suggest.h"
#include "qkv/io/model_dir.h"
#include "qkv/kernels/kernels.h"
#include "qkv/train/config/config_keys.h"
#include "qkv/train/config/config_rules.h"
#include "qkv/train/config/presets.h"
#include "qkv/train/config/synonyms.h"

namespace qkv {
namespace {

// Returns the place of a value: FILE:LINE, or --set; FILE alone if it was not given.
std::string place_of(const toml::node* node, const std::string& file) {
  if (node == nullptr) return file;
  const toml::source_region& source = node->source();
  return source.path && *source.path == file ? fmt::format("{}:{}", file, source.begin.line) : "--set";
}

// Keys of other tools without an equivalent key here, and the replacement to suggest.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"train.device", "qkv trains on the processor; there is nothing to choose"},
    {"model.vocab_size", "the tokenizer determines it: set tokenizer.vocab_size"},
    {"train.threads", "give the option --threads"},
    {"train.dropout", "set model.dropout"},
    {"train.fp16", "set train.precision = \"bf16\" or \"f32\""},
    {"train.bf16", "set train.precision = \"bf16\""},
    {"train.num_workers", "give the option --threads"},
};
// The value as written, or else its kind.
std::string text_of(const toml::node& n) {
  if (const auto s = n.value_exact<std::string>()) return fmt::format("'{}'", *s);
  if (n.is_array()) return "a list";
  if (n.is_table()) return "a table";
  std::ostringstream out;
  n.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) out << value;
  });
  return out.str();
}

// A whole number, also one written as 1e3.
std::optional<int64_t> whole(const toml::node& n) {
  constexpr double kMost = 9007199254740992;  // largest bound below which doubles represent every integer
  if (const auto i = n.value_exact<int64_t>()) return i;
  const auto d = n.value_exact<double>();
  return d && std::abs(*d) <= kMost && *d == std::floor(*d) ? std::optional(static_cast<int64_t>(*d))
                                                            : std::nullopt;
}

// Words with commas between them.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    const size_t begin = std::min(word.find_first_not_of(' '), word.size());
    out.push_back(word.substr(begin, word.find_last_not_of(' ') + 1 - begin));
  }
  return out.empty() ? std::vector{text} : out;
}

// The text after "=" in each --set, by its key.
using OverrideTexts = std::map<std::string, std::string>;

class Reader {
 public:
  Reader(const toml::table& root, std::string file, const OverrideTexts& overrides)
      : root_(root), file_(std::move(file)), overrides_(overrides) {
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (std::find(std::begin(kSections), std::end(kSections), name) == std::end(kSections))
        usage("{}: {}: unknown (expected [data], [mix.NAME], [tokenizer], [model] or [train])",
              place_of(&node, file_), name);
      if (!node.is_table()) usage("{}: {}: expected a table [{}]", place_of(&node, file_), name, name);
    }
  }

  void section(const std::string& name) {
    finish();
    section_ = name;
    asked_.clear();
    table_ = &root_;
    std::istringstream path(name);
    for (std::string part; table_ != nullptr && std::getline(path, part, '.');)
      table_ = table_->get(part) == nullptr ? nullptr : table_->get(part)->as_table();
  }
  // Throws UsageError for keys of the section that were never read.
  void finish() const {
    if (table_ == nullptr) return;
    for (const auto& [key, node] : *table_) {
      if (asked_.contains(std::string(key.str()))) continue;
      if (section_ == "model" && key == "kind") continue;  // sections of their own
      const std::vector<std::string_view> known(asked_.begin(), asked_.end());
      const std::string name = fmt::format("{}.{}", section_, std::string(key.str()));
      for (const auto& [theirs, cure] : kElsewhere)
        if (theirs == name) usage("{}: {}: unknown key: {}", place_of(&node, file_), name, cure);
      usage("{}: {}.{}: unknown key{}", place_of(&node, file_), section_, std::string(key.str()),
            did_you_mean(key.str(), known, kKeySynonyms));
    }
  }
  bool given(const std::string& key) const { return given_.contains(key); }  // "train.steps"
  // True for a key that a user chose. A run's own config.toml, which qkv writes, gives every key.
  bool chosen(const std::string& key) const {
    const auto given =
        std::ranges::count_if(given_, [this](const std::string& k) { return all_.contains(k); });
    const bool gives_all = 2 * given > std::ssize(all_);
    return overrides_.contains(key) || (!gives_all && written_.contains(key));
  }

  void operator()(const Key& k, std::string& out) {
    // On the command line a string needs no quotes, whatever it looks like.
    const toml::node* n = find(k);
    if (const std::string* text = override_of(k); n != nullptr && n->is_value() && !n->is_string() && text)
      out = *text;
    else
      value(k, "a string", out);
  }
  void operator()(const Key& k, bool& out) { value(k, "true or false", out); }
  void operator()(const Key& k, uint64_t& out) {
    auto n = static_cast<int64_t>(out);
    (*this)(k, n, Range<int64_t>{0, std::numeric_limits<int64_t>::max()});
    out = static_cast<uint64_t>(n);
  }
  void operator()(const Key& k, int64_t& out, Range<int64_t> range, const char* word_for_zero = nullptr) {
    const toml::node* n = find(k);
    if (n == nullptr) return;
    if (word_for_zero != nullptr && n->value_exact<std::string>() == word_for_zero) {
      out = 0;
      return;
    }
    const auto v = whole(*n);
    if (!v)
      refuse(k, fmt::format("expected an integer{}, got {}",
                            word_for_zero ? fmt::format(" or \"{}\"", word_for_zero) : "", text_of(*n)));
    in_range(k, *v, range);
    out = *v;
  }
  void operator()(const Key& k, std::vector<int64_t>& out, Range<int64_t> range) {
    list_of(k, "integers", out, range, [](const toml::node& e) { return whole(e); });
  }
  void operator()(const Key& k, std::vector<double>& out, Range<double> range) {
    list_of(k, "numbers", out, range, [](const toml::node& e) { return e.value<double>(); });
  }
  void operator()(const Key& k, double& out, Range<double> range) {
    const toml::node* n = find(k);
    if (n == nullptr) return;
    const auto v = n->value<double>();  // integers too
    if (!v || !n->is_number()) refuse(k, fmt::format("expected a number, got {}", text_of(*n)));
    in_range(k, *v, range);
    out = *v;
  }
  void operator()(const Key& k, float& out, Range<double> range) {
    double wide = out;
    (*this)(k, wide, range);
    out = static_cast<float>(wide);
  }
  // A string or a list of strings; on the command line also words with commas between them.
  void operator()(const Key& k, std::vector<std::string>& out) {
    const toml::node* n = find(k);
    if (n == nullptr) return;
    const std::string* text = override_of(k);
    if (text != nullptr && n->is_value() && (is_bare(*n) || !n->is_string()))
      out = file_exists(*text) ? std::vector{*text} : words_of(*text);
    else
      strings(k, *n, out);
  }
  // A list of strings in which commas may stand.
  void strings(const Key& k, const toml::node& node, std::vector<std::string>& out) {
    const toml::node* n = &node;
    if (const auto one = n->value_exact<std::string>()) {
      out = {*one};
      return;
    }
    const toml::array* list = n->as_array();
    if (list == nullptr)
      refuse(k, fmt::format("expected a string or a list of strings, got {}", text_of(*n)));
    out.clear();
    for (const toml::node& e : *list) {
      const auto s = e.value_exact<std::string>();
      if (!s) refuse(k, "expected a list of strings");
      out.push_back(*s);
    }
  }
  void operator()(const Key& k, std::vector<Pattern>& out) {
    std::vector<std::string> texts = texts_of(out);
    if (const toml::node* n = find(k)) strings(k, *n, texts);
    try {
      out = patterns_from_texts(texts);
    } catch (const Error& e) {
      refuse(k, e.what());
    }
  }
  void operator()(const Key& k, std::string& out, const Choices& choices) {
    (*this)(k, out);
    if (std::find(choices.begin(), choices.end(), out) == choices.end())
      refuse(k, fmt::format("expected one of {}, got '{}'", fmt::join(choices, ", "), out));
  }
  template <typename E>
  requires std::is_enum_v<E>
  void operator()(const Key& k, E& out) {
    std::string name = name_of(out);
    (*this)(k, name, names_of<E>());
    out = from_name<E>(name);
  }
  template <typename Optional, typename T>
  void operator()(const Key& k, const OrElse<Optional, T>& out) {
    T value = out.value();
    (*this)(k, value);
    out.set(value);
  }
  void kinds(std::vector<BlockKind>&) {}  // read once the model's own block is known
  // [model.kind.NAME] of each kind.
  void read_kinds(ModelSpec& m) {
    const toml::node* all = root_["model"]["kind"].node();
    if (all == nullptr) return;
    if (!all->is_table())
      usage("{}: model.kind: expected a table [model.kind.NAME] for each kind", place_of(all, file_));
    for (const auto& [key, node] : *all->as_table()) {
      const std::string name(key.str());
      if (!is_section_name(name) || name == kDefaultKind)
        usage("{}: model.kind: '{}' is no name of a kind: letters, digits, _ and - are{}",
              place_of(&node, file_), name,
              name == kDefaultKind ? ", but [model] itself describes this one" : "");
      if (!node.is_table())
        usage("{}: model.kind.{}: expected a table [model.kind.NAME] for each kind", place_of(&node, file_),
              name);
      auto kind = std::ranges::lower_bound(m.kinds, name, {}, &BlockKind::name);
      if (kind == m.kinds.end() || kind->name != name) kind = m.kinds.insert(kind, {name, m});
      section("model.kind." + name);
      ModelKeys<Reader> keys{*this};
      for_each_field(kind->block, keys);
    }
    finish();
  }
  void warmup_fraction(const Key& k, Range<double> range) { (*this)(k, warmup_fraction_, range); }
  double warmup_fraction() const { return warmup_fraction_; }

 private:
  static bool is_of_kind(const std::string& section) { return section.starts_with("model.kind."); }
  static constexpr const char* kSections[] = {"data", "mix", "tokenizer", "model", "train"};

  const toml::node* find(const Key& k) {
    asked_.insert(k.name);
    if (!is_of_kind(section_)) all_.insert(section_ + "." + k.name);
    const toml::node* n = table_ == nullptr ? nullptr : table_->get(k.name);
    if (n == nullptr) return n;
    given_.insert(section_ + "." + k.name);
    // Keys from a preset do not count as given in the file.
    if (const auto& from = n->source().path; from && *from == file_) written_.insert(section_ + "." + k.name);
    return n;
  }
  template <typename T>
  void value(const Key& k, const char* expected, T& out) {
    const toml::node* n = find(k);
    if (n == nullptr) return;
    const auto v = n->value_exact<T>();
    if (!v) refuse(k, fmt::format("expected {}, got {}", expected, text_of(*n)));
    out = *v;
  }
  const std::string* override_of(const Key& k) const {
    const auto it = overrides_.find(section_ + "." + k.name);
    return it == overrides_.end() ? nullptr : &it->second;
  }
  // True if a value of --set is not TOML but a string without quotes.
  static bool is_bare(const toml::node& n) { return n.source().path == nullptr; }
  template <typename T, typename Value>
  void list_of(const Key& k, const char* what, std::vector<T>& out, Range<T> range, const Value& value) {
    const toml::node* n = find(k);
    if (n == nullptr) return;
    const toml::array* list = n->as_array();
    if (list == nullptr) refuse(k, fmt::format("expected a list of {}", what));
    out.clear();
    for (const toml::node& e : *list) {
      const auto v = value(e);
      if (!v || !e.is_number()) refuse(k, fmt::format("expected a list of {}", what));
      in_range(k, *v, range);
      out.push_back(*v);
    }
  }
  template <typename T>
  void in_range(const Key& k, T v, Range<T> range) const {
    if (!range.holds(v))
      refuse(k, fmt::format("must be between {} and {}, got {}", range.least, range.most, v));
  }
  [[noreturn]] void refuse(const Key& k, const std::string& why) const {
    usage("{}: {}.{}: {}", place_of(table_->get(k.name), file_), section_, k.name, why);
  }

  const toml::table& root_;
  std::string file_, section_;
  const OverrideTexts& overrides_;
  const toml::table* table_ = nullptr;
  // asked_: keys of the section; all_: keys other than those of kinds of blocks; written_: keys in the
  // file.
  std::set<std::string> asked_, all_, given_, written_;
  double warmup_fraction_ = 0;
};

// The part of a key before its last name: "train", "mix.NAME", "model.kind.NAME"; npos if there is none.
size_t end_of_section(const std::string& text) {
  const size_t named = text.starts_with("mix.") ? 4 : text.starts_with("model.kind.") ? 11 : 0;
  return text.find('.', named);
}

// "train.steps=10", the value as TOML or, failing that, as a bare string.
void apply_override(toml::table& root, const std::string& text, OverrideTexts& texts) {
  const size_t equals = text.find('=');
  const size_t dot = end_of_section(text);
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
  toml::table* table = &root;
  std::istringstream path(section);
  for (std::string name; table != nullptr && std::getline(path, name, '.');) {
    if (!table->contains(name)) table->insert(name, toml::table{});
    table = table->get(name)->as_table();
  }
  if (table == nullptr || parsed.size() != 1) usage("--set: '{}' does not fit the configuration", text);
  table->insert_or_assign(key, std::move(*parsed.get("value")));
  texts[text.substr(0, equals)] = value;
}

// Copies into `to` the keys of `from` that it lacks, recursively in tables that both have.
void insert_absent(toml::table& to, const toml::table& from) {
  for (const auto& [key, value] : from)
    if (toml::table* both = to[key].as_table(); both != nullptr && value.is_table())
      insert_absent(*both, *value.as_table());
    else
      to.insert(key, value);
}

// If `layer_kinds` was given, removes the kinds of layers that it does not name from a preset.
void leave_out_kinds(const toml::node_view<toml::node>& layer_kinds, toml::table& preset) {
  toml::table* kinds = preset["kind"].as_table();
  if (!layer_kinds || kinds == nullptr) return;
  std::vector<std::string> names;
  if (const auto text = layer_kinds.value<std::string>()) names = words_of(*text);
  if (const toml::array* list = layer_kinds.as_array())
    for (const toml::node& name : *list) names.push_back(name.value_or(std::string()));
  std::vector<std::string> unnamed;
  for (const auto& [key, value] : *kinds)
    if (std::ranges::find(names, key.str()) == names.end()) unnamed.emplace_back(key.str());
  for (const std::string& name : unnamed) kinds->erase(name);
}

// Fills keys of [model] that the file does not give from its preset and its size.
void apply_preset(toml::table& root, const std::string& path) {
  const auto name = root["model"]["preset"].value<std::string>(),
             size = root["model"]["size"].value<std::string>();
  const bool named = name && !name->empty(), sized = size && !size->empty();
  if (!named && !sized) return;
  toml::table& model = *root["model"].as_table();
  if (model["from"].value<std::string>().value_or("") != "") return;  // that model has its preset
  try {
    if (sized) {
      const PresetSize& s = preset_size_from_name(*size);
      for (const auto& [key, value] : {std::pair("width", s.width), {"layers", s.layers}, {"heads", s.heads}})
        model.insert(key, value);
    }
    if (!named) return;
    const Preset& preset = preset_from_name(*name);
    toml::table keys = toml::parse(preset.model, std::string_view("preset"));
    leave_out_kinds(model["layer_kinds"], keys);
    insert_absent(model, keys);
    const ModelSpec defaults = TrainConfig().model;
    const auto width = model["width"].value_or(defaults.width),
               heads = model["heads"].value_or(defaults.attention.heads);
    if (preset.objective != nullptr) {
      if (!root.contains("train")) root.insert("train", toml::table());
      root["train"].as_table()->insert("objective", preset.objective);
    }
    // Rounded up to a multiple of 32, as published sizes are.
    if (preset.hidden != 4)
      model.insert("hidden",
                   static_cast<int64_t>(std::ceil(preset.hidden * static_cast<double>(width) / 32)) * 32);
    if (preset.kv_share != 1 && (preset.kv_share == 0 || heads % preset.kv_share == 0))
      model.insert("kv_heads", preset.kv_share == 0 ? 1 : heads / preset.kv_share);
  } catch (const Error& e) {
    usage("{}: model.{}", path, e.what());
  }
}

// The stack that model.part takes out of the model that model.from names.
ModelSpec part_to_begin_with(const ModelSpec& whole, const std::string& from, const std::string& part,
                             const std::string& path) {
  if (part != "encoder" && part != "decoder")
    usage("{}: model.part: '{}': expected encoder or decoder", path, part);
  if (whole.architecture != Architecture::encoder_decoder)
    usage("{}: model.part: {} is one {}, not an encoder-decoder", path, from, name_of(whole.architecture));
  if (whole.lora.any())
    usage("{}: model.from: {} is an adapter: make a model of both with qkv merge", path, from);
  try {
    return whole.part(from_name<Architecture>(part));
  } catch (const Error& e) {
    usage("{}: model.part: {}", path, e.what());
  }
}

// Returns the spec of the model that model.from names, and starts the configuration from it; else that of
// model.architecture.
ModelSpec spec_to_begin_with(const toml::table& root, const std::string& path, TrainConfig& c) {
  const auto from = root["model"]["from"].value<std::string>(),
             part = root["model"]["part"].value<std::string>();
  const bool takes_part = part && !part->empty();
  if (takes_part && (!from || from->empty()))
    usage("{}: model.part: name the encoder-decoder with model.from", path);
  if (from && !from->empty()) {
    try {
      c.model = load_spec(resolve_model_dir(*from));
    } catch (const Error& e) {
      usage("{}: model.from: {}", path, e.what());
    }
    if (takes_part) c.model = part_to_begin_with(c.model, *from, *part, path);
    if (c.model.lora.any())
      usage("{}: model.from: {} is an adapter: make a model of both with qkv merge", path, *from);
    if (c.model.features.any())
      usage("{}: model.from: {} reads images or spectrograms, which no objective here has", path, *from);
    const ModelSpec from_spec = c.model;  // with its classes, which c.model gives up
    c.model.labels.clear();
    return from_spec;
  }
  if (root["model"]["architecture"].value<std::string>() == "encoder") {
    const ModelSpec sizes = c.model;
    c.model = bert_spec(0, sizes.context, sizes.width, sizes.layers, sizes.attention.heads);
    c.model.head_width = 0;
    c.model.unembedding_bias = false;
  }
  return c.model;
}

// The datasets of [mix.NAME], with only their names set.
std::vector<MixedSet> mixed_sets(const toml::table& root, const std::string& path) {
  std::vector<MixedSet> out;
  const toml::table* mix = root["mix"].as_table();
  if (mix == nullptr) return out;
  for (const auto& [key, node] : *mix) {
    const std::string name(key.str());
    if (!is_section_name(name))
      usage("{}: mix: '{}' is no name of a data set: letters, digits, _ and - are", place_of(&node, path),
            name);
    if (!node.is_table())
      usage("{}: mix.{}: expected a table [mix.NAME] for each data set", place_of(&node, path), name);
    out.push_back({.name = name});
  }
  return out;
}

}  // namespace

TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides) {
  return parse_train_config(read_file(path), path, overrides);
}

bool is_toml(const std::string& path) {
  try {
    static_cast<void>(toml::parse(read_file(path), path));
    return true;
  } catch (const toml::parse_error&) {
    return false;
  }
}

TrainConfig parse_train_config(const std::string& text, const std::string& path,
                               const std::vector<std::string>& overrides) {
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    usage("{}:{}: {}", path, e.source().begin.line, e.description());
  }
  // An override of either steps or epochs replaces both.
  if (toml::table* train = root["train"].as_table())
    for (const std::string& o : overrides) {
      if (o.starts_with("train.steps=")) train->erase("epochs");
      if (o.starts_with("train.epochs=")) train->erase("steps");
    }
  OverrideTexts texts;
  for (const std::string& o : overrides) apply_override(root, o, texts);
  apply_preset(root, path);

  TrainConfig c;
  const ModelSpec from = spec_to_begin_with(root, path, c);
  c.mix = mixed_sets(root, path);
  Reader reader(root, path, texts);
  visit(c, reader);
  reader.finish();
  const auto given = [&](const std::string& key) { return reader.given(key); };
  const auto chosen = [&](const std::string& key) { return reader.chosen(key); };
  if (c.data.train.empty() && c.mix.empty())
    usage("{}: data.train: missing: name the text files to train on", path);

  resolve(c, {path, from, given, chosen, [&](const std::string& key) { return texts.contains(key); },
              reader.warmup_fraction(), [&](ModelSpec& m) { reader.read_kinds(m); }});
  return c;
}

std::optional<RunConfig> read_run_config(const std::string& dir) {
  std::filesystem::path folder = std::filesystem::absolute(dir).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();
  RunConfig run{dir + "/config.toml", {}};
  const std::string name = folder.filename().string();
  if (!file_exists(run.path) && (name == "best" || name == "last" || name.starts_with("step-")))
    run.path = (folder.parent_path() / "config.toml").string();
  if (!file_exists(run.path)) return std::nullopt;
  toml::table root;
  try {
    root = toml::parse(read_file(run.path), run.path);
  } catch (const toml::parse_error& e) {
    usage("{}:{}: {}", run.path, e.source().begin.line, e.description());
  }
  root.erase("model");
  root.erase("tokenizer");
  run.config.mix = mixed_sets(root, run.path);
  const OverrideTexts none;
  Reader reader(root, run.path, none);
  visit(run.config, reader);
  reader.finish();
  return run;
}

DType TrainConfig::compute() const {
  return precision == "bf16" || (precision == "auto" && bf16_is_fast()) ? DType::bf16 : DType::f32;
}

}  // namespace qkv

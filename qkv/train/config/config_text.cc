// Configurations as text: TOML, the fingerprint that a resumed run is compared by, and help.
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <sstream>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/progress.h"
#include "qkv/train/config/config.h"
#include "qkv/train/config/config_keys.h"
#include "qkv/train/config/key_help.h"
#include "qkv/train/config/synonyms.h"

namespace qkv {
namespace {

// Bounds that nobody reaches are left out.
template <typename T>
std::string range_text(Range<T> range) {
  if (static_cast<double>(range.most) < 1e6)
    return fmt::format("{:g} to {:g}", static_cast<double>(range.least), static_cast<double>(range.most));
  if (range.least == 0) return "0 or more";
  return static_cast<double>(range.least) <= -1e6
             ? ""
             : fmt::format("at least {:g}", static_cast<double>(range.least));
}

std::string toml_value(const std::string& s) {
  // The library puts what has line ends between three quotes, which such a string would end.
  if (s.find("'''") != std::string::npos) return Json(s).dump();
  std::ostringstream out;
  out << toml::value<std::string>(s);  // quoted and escaped
  return out.str();
}
std::string toml_value(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& s : list) out += (out.empty() ? "" : ", ") + toml_value(s);
  return "[" + out + "]";
}
std::string toml_value(const std::vector<int64_t>& list) {
  return fmt::format("[{}]", fmt::join(list, ", "));
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

std::string toml_value(const std::vector<double>& list) {
  std::string out;
  for (const double x : list) out += (out.empty() ? "" : ", ") + toml_value(x);
  return "[" + out + "]";
}

// Makes the settings of the keys.
class Writer {
 public:
  std::vector<Setting> settings;

  void section(const std::string& name) { section_ = name; }
  // Every key, as of [model]: with model.from a kind that says nothing of one would have it from there.
  virtual void kinds(std::vector<BlockKind>& kinds) {
    for (BlockKind& kind : kinds) {
      section("model.kind." + kind.name);
      ModelKeys<Writer> keys{*this};
      for_each_field(kind.block, keys);
    }
  }
  template <typename T>
  void operator()(const Key& k, const T& value) {
    if constexpr (std::is_enum_v<T>)
      (*this)(k, name_of(value), names_of<T>());
    else
      put(k, toml_value(value), "");
  }
  template <typename Optional, typename T>
  void operator()(const Key& k, const OrElse<Optional, T>& value) {
    (*this)(k, value.value());
  }
  void operator()(const Key& k, const std::vector<Pattern>& value) {
    put(k, toml_value(texts_of(value)), "");
  }
  void operator()(const Key& k, uint64_t value) { put(k, std::to_string(value), ""); }
  void operator()(const Key& k, int64_t value, Range<int64_t> range, const char* word_for_zero = nullptr) {
    put(k,
        value == 0 && word_for_zero != nullptr ? toml_value(std::string(word_for_zero)) : toml_value(value),
        range_text(range));
  }
  void operator()(const Key& k, const std::vector<int64_t>& value, Range<int64_t> range) {
    put(k, toml_value(value), range_text(range));
  }
  void operator()(const Key& k, const std::vector<double>& value, Range<double> range) {
    put(k, toml_value(value), range_text(range));
  }
  void operator()(const Key& k, double value, Range<double> range) {
    put(k, toml_value(value), range_text(range));
  }
  void operator()(const Key& k, float value, Range<double> range) { (*this)(k, decimal(value), range); }
  void operator()(const Key& k, const std::string& value, const Choices& choices) {
    put(k, toml_value(value), fmt::format("one of {}", fmt::join(choices, ", ")));
  }
  void warmup_fraction(const Key&, Range<double>) {}  // it has become warmup_steps

 protected:
  void put(const Key& k, const std::string& value, const std::string& range) {
    settings.push_back(
        {section_, k.name, k.derived && derived_ ? k.derived : value, k.help, range, k.decides, k.read_by});
  }

  bool derived_ = false;  // show how a default is derived instead of its value
  std::string section_;
};

// Makes settings for people: of defaults how they are derived, and of mixtures and kinds one as an example.
class HelpWriter : public Writer {
 public:
  HelpWriter() { derived_ = true; }
  void kinds(std::vector<BlockKind>&) override {
    section("model.kind.NAME");
    put({"KEY", "any key from kv_latent to relative_segments, for the layers that layer_kinds calls NAME"},
        "VALUE", "");
  }
  void warmup_fraction(const Key& k, Range<double> range) { put(k, "", range_text(range)); }
};

TrainConfig config_of_defaults() {
  TrainConfig defaults;
  defaults.mix = {{.name = "NAME"}};  // how one of several datasets is described
  return defaults;
}

// "all but embed, answer" where most objectives read it.
std::string objectives_text(const std::vector<Objective>& objectives) {
  const std::vector<std::string> all = names_of<Objective>();
  std::vector<std::string> readers, others = all;
  for (const Objective o : objectives) readers.push_back(name_of(o));
  if (2 * readers.size() <= all.size()) return fmt::format("{}", fmt::join(readers, ", "));
  std::erase_if(others, [&](const std::string& o) { return std::ranges::find(readers, o) != readers.end(); });
  return others.empty() ? "" : fmt::format("all but {}", fmt::join(others, ", "));
}

// The meaning stands on the key's line if it is short, else on lines below.
std::string text_of(const KeyHelp& k) {
  constexpr size_t kColumns = 100;
  constexpr std::string_view kIndent = "      # ";
  const std::string about = k.help + (k.range.empty() ? "" : " (" + k.range + ")") +
                            (k.objectives.empty() ? "" : " [" + k.objectives + "]"),
                    key = fmt::format("{} = {}", k.key, k.value),
                    line = fmt::format("  {:<30}  # {}\n", key, about);
  if (line.size() <= kColumns) return line;
  return fmt::format("  {}\n{}{}\n", key, kIndent, wrapped(about, kColumns - kIndent.size(), kIndent));
}

}  // namespace

std::vector<Setting> settings(const TrainConfig& config) {
  TrainConfig copy = config;
  Writer writer;
  visit(copy, writer);
  return std::move(writer.settings);
}

std::string to_toml(const TrainConfig& config) {
  std::string out, section;
  for (const Setting& s : settings(config)) {
    if (config.epochs > 0 && s.section == "train" && s.key == "steps") continue;  // found from epochs
    if (s.section != section) out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section = s.section);
    // TOML drops a line's end right behind the quotes that open a string of several lines.
    const bool drops = s.value.starts_with("'''\n") || s.value.starts_with("\"\"\"\n");
    out += fmt::format("{} = {}{}\n", s.key, drops ? s.value.substr(0, 3) + "\n" : "",
                       drops ? s.value.substr(3) : s.value);
  }
  return out;
}

std::string fingerprint(const TrainConfig& config) {
  std::string out;
  for (const Setting& s : settings(config))
    if (s.decides) out += fmt::format("{}.{} = {}\n", s.section, s.key, s.value);
  return out;
}

std::string default_fingerprint() {
  return fingerprint(config_of_defaults());
}

std::vector<KeyHelp> key_helps() {
  TrainConfig defaults = config_of_defaults();
  HelpWriter writer;
  visit(defaults, writer);
  std::vector<KeyHelp> out;
  for (const Setting& s : writer.settings)
    out.push_back({s.section, s.key, s.value, s.help, s.range, objectives_text(s.read_by.objectives)});
  return out;
}

std::vector<KeyHelp> common_keys() {
  constexpr const char* kCommon[] = {
      "data.train",      "data.valid",    "tokenizer.type", "tokenizer.vocab_size", "model.from",
      "model.preset",    "model.context", "model.width",    "model.layers",         "model.heads",
      "train.objective", "train.out",     "train.steps",    "train.batch",          "train.learning_rate"};
  std::vector<KeyHelp> out;
  for (const KeyHelp& k : key_helps())
    if (std::ranges::find(kCommon, k.section + "." + k.key) != std::end(kCommon)) out.push_back(k);
  return out;
}

namespace {

std::string lowered(std::string text) {
  for (char& c : text) c = c == '_' ? ' ' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::vector<KeyHelp> find_keys(const std::string& words) {
  std::vector<KeyHelp> keys = key_helps(), out;
  const auto keep = [&](const auto& fits) {
    std::ranges::copy_if(keys, std::back_inserter(out), fits);
    return !out.empty();
  };
  if (keep([&](const KeyHelp& k) { return k.section == words || k.section == words + ".NAME"; })) return out;
  std::erase_if(keys, [](const KeyHelp& k) { return k.section == "mix.NAME" && k.key != "weight"; });
  if (keep([&](const KeyHelp& k) { return k.key == words || k.section + "." + k.key == words; })) return out;
  for (const auto& [theirs, ours] : kKeySynonyms)
    if (theirs == words && keep([&, ours = ours](const KeyHelp& k) { return k.key == ours; })) return out;
  std::istringstream text(lowered(words));
  const std::vector<std::string> all(std::istream_iterator<std::string>(text), {});
  const auto has_all = [&](const std::string& text) {
    return !all.empty() && std::ranges::all_of(all, [&](const std::string& word) {
      return lowered(text).find(word) != std::string::npos;
    });
  };
  keep([&](const KeyHelp& k) { return has_all(k.key); });
  keep([&](const KeyHelp& k) { return !has_all(k.key) && has_all(k.key + " " + k.help + " " + k.range); });
  return out;
}

std::string lines_of(std::span<const KeyHelp> keys) {
  std::string out, section;
  for (const KeyHelp& k : keys) {
    if (k.section != section) out += fmt::format("{}  [{}]\n", out.empty() ? "" : "\n", section = k.section);
    out += text_of(k);
  }
  return out;
}

}  // namespace qkv

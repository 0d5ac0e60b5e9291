// qkv config: help about the settings of a configuration.
#include <fmt/format.h>

#include <map>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/train/config/key_help.h"
#include "qkv/train/config/presets.h"

namespace qkv {
namespace {

struct ConfigOptions {
  std::vector<std::string> words;
  bool all = false, json = false;
};

std::string presets_text() {
  std::string out;
  for (const Preset& p : presets()) out += fmt::format("  {:<13} {}\n", p.name, p.source);
  return out;
}

std::string details_of(const KeyHelp& k) {
  std::string out = fmt::format("{}.{}\n  {}\n  default: {}\n", k.section, k.key, k.help, k.value);
  if (!k.range.empty()) out += fmt::format("  values: {}\n", k.range);
  if (!k.objectives.empty()) out += fmt::format("  objectives: {}\n", k.objectives);
  return out + fmt::format("  on the command line: qkv train CONFIG --set {}.{}=VALUE\n", k.section, k.key);
}

std::string overview() {
  std::map<std::string, int> counts;
  std::vector<std::string> sections;
  for (const KeyHelp& k : key_helps())
    if (counts[k.section]++ == 0) sections.push_back(k.section);
  for (std::string& name : sections) name += fmt::format(" ({})", counts[name]);
  return fmt::format(
      "Settings that most runs need:\n\n{}\nAll sections, with their number of settings: {}.\n"
      "Show more: qkv config SECTION | KEY | WORDS TO SEARCH | presets, or qkv config --all\n",
      lines_of(common_keys()), fmt::join(sections, ", "));
}

OrderedJson json_of(std::span<const KeyHelp> keys) {
  OrderedJson out = OrderedJson::array();
  for (const KeyHelp& k : keys)
    out.push_back({{"section", k.section},
                   {"key", k.key},
                   {"default", k.value},
                   {"help", k.help},
                   {"range", k.range},
                   {"objectives", k.objectives}});
  return out;
}

void run_config(const ConfigOptions& o) {
  const std::string words = fmt::format("{}", fmt::join(o.words, " "));
  if (words == "presets") return print(presets_text());
  if (words.empty() && !o.all && !o.json) return print(overview());
  const std::vector<KeyHelp> keys = words.empty() ? key_helps() : find_keys(words);
  if (keys.empty())
    throw UsageError(fmt::format("no setting matches '{}': qkv config --all lists every setting", words));
  if (o.json) return print(json_of(keys).dump(2) + "\n");
  print(keys.size() == 1 ? details_of(keys[0]) : lines_of(keys));
}

}  // namespace

void add_config_command(Command& app) {
  auto o = std::make_shared<ConfigOptions>();
  Command* c = app.add_subcommand("config", "Explain and search the settings of a configuration");
  c->add_option("TOPIC", o->words,
                "Section, setting or words to search (default: the settings that most runs need)");
  c->add_flag("--all", o->all, "Show every setting");
  c->add_flag("--json", o->json, "Print a JSON array of settings");
  c->footer(
      "Examples: qkv config train\n"
      "          qkv config learning_rate\n"
      "          qkv config gradient accumulation");
  c->callback([o] { run_config(*o); });
}

}  // namespace qkv

// Generation settings, each declared once, for command lines, generation_config.json, qkv forward and the C
// API.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "qkv/base/json.h"
#include "qkv/infer/beam.h"

namespace qkv {

// Settings of sampling and of beam search.
struct GenerationSettings {
  GenerateOptions drawing =
      {};  // also has the settings shared with a search: lengths, ends, rules, excluded ids, repetition
  BeamOptions search = {};    // settings of beam search only
  int64_t returned = 1;       // number of outputs of a prompt
  bool alternatives = false;  // outputs differ in their first token

  // The options of beam_search(): `search`, with lengths, ends and rules from `drawing`.
  BeamOptions search_options() const;
};

// A setting.
struct GenerationField {
  enum class Acts { always, drawing, searching };
  using Member =
      std::variant<int64_t*, uint64_t*, double*, bool*, BeamOptions::Stop*, std::optional<int32_t>*,
                   std::vector<int32_t>*, std::vector<std::vector<int32_t>>*>;

  const char* key;     // Hugging Face's name, or else CTranslate2's
  const char* option;  // command-line option, "--beams"; empty: none
  const char* help;
  Acts acts;
  Member (*member)(GenerationSettings& settings);
  double least = 0, most = 0;  // range of a numeric value
  double neutral = 0;          // numeric value without effect
};

// All settings, in the order of --help.
std::span<const GenerationField> generation_fields();
// The setting with this key; null if there is none.
const GenerationField* find_generation_field(std::string_view key);

// Sets a value from text: a number; true or false; an id or null; ids separated by spaces; sequences of ids
// separated by |; for early_stopping also never. Throws Error naming the key and what was expected.
void set_from_text(const GenerationField& field, const std::string& text, GenerationSettings& settings);
// The value in the format of set_from_text().
std::string text_of(const GenerationField& field, const GenerationSettings& settings);
// Sets a value from JSON, with lists instead of spaces and |.
void set_from_json(const GenerationField& field, const JsonField& value, GenerationSettings& settings);
// Sets values from a list key=value,key=value. `other` may accept keys that are not settings; `others`
// names them for errors. Returns the keys. Throws Error naming an item that cannot be parsed.
std::set<std::string> set_from_list(
    const std::string& list, GenerationSettings& settings,
    const std::function<bool(const std::string& key, const std::string& value)>& other = nullptr,
    const std::string& others = {});
// True if these settings ask for a search. `given`: the keys that were set.
bool asks_for_search(const GenerationSettings& settings, const std::set<std::string>& given);
// True if the value has no effect.
bool is_neutral(const GenerationField& field, const GenerationSettings& settings);
// Copies the value of a setting.
void copy_setting(const GenerationField& field, const GenerationSettings& from, GenerationSettings& to);

// Names a setting in errors: as the subject of a sentence ("top_k=3", "--top-k:"), or elsewhere in it.
using SettingName = std::function<std::string(const GenerationField& field, bool subject)>;

// Throws Error if settings exclude each other, or if one of those `given` (keys) has no effect: sampling
// settings in a search or with greedy decoding, search settings without a search.
void check_acting(const GenerationSettings& settings, const std::set<std::string>& given, bool drawing,
                  bool searching, const SettingName& name);

// Throws Error naming an id, in the settings with these keys, that is not below vocab_size.
void check_ids(const GenerationSettings& settings, const std::set<std::string>& keys, int64_t vocab_size);

}  // namespace qkv

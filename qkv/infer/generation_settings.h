// The settings of generation, each declared once: command lines, generation_config.json, qkv forward and the
// C API read them from here.
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

// How outputs are drawn or searched for.
struct GenerationSettings {
  GenerateOptions drawing =
      {};                     // with what a search has, too: lengths, ends, rules, excluded ids, repetition
  BeamOptions search = {};    // settings that only a search has
  int64_t returned = 1;       // outputs of a prompt
  bool alternatives = false;  // they differ in their first token

  // The options of beam_search(): `search`, with lengths, ends and rules from `drawing`.
  BeamOptions search_options() const;
};

// One setting.
struct GenerationField {
  enum class Acts { always, drawing, searching };
  using Member =
      std::variant<int64_t*, uint64_t*, double*, bool*, BeamOptions::Stop*, std::optional<int32_t>*,
                   std::vector<int32_t>*, std::vector<std::vector<int32_t>>*>;

  const char* key;     // Hugging Face's name; where it has none CTranslate2's
  const char* option;  // on command lines, "--beams"; empty: there is none
  const char* help;
  Acts acts;
  Member (*member)(GenerationSettings& settings);
  double least = 0, most = 0;  // range of a number
  double neutral = 0;          // a number that asks for nothing
};

// All of them, in the order of --help.
std::span<const GenerationField> generation_fields();
// Null where there is none.
const GenerationField* find_generation_field(std::string_view key);

// Sets it from text: a number; true or false; an id or null; ids with spaces between them; sequences of ids
// with | between them; early_stopping also never. Throws Error naming the key and what was expected.
void set_from_text(const GenerationField& field, const std::string& text, GenerationSettings& settings);
// Its value as set_from_text() reads it.
std::string text_of(const GenerationField& field, const GenerationSettings& settings);
// Sets it from JSON, with lists in the place of spaces and |.
void set_from_json(const GenerationField& field, const JsonField& value, GenerationSettings& settings);
// Sets those of a list key=value,key=value. `other` may take a key that is none of these, of those that
// `others` names. Returns the keys.
// Throws Error naming an item that cannot be understood.
std::set<std::string> set_from_list(
    const std::string& list, GenerationSettings& settings,
    const std::function<bool(const std::string& key, const std::string& value)>& other = nullptr,
    const std::string& others = {});
// True where these settings, of which those with the keys `given` were set, ask for a search.
bool asks_for_search(const GenerationSettings& settings, const std::set<std::string>& given);
// True where its value asks for nothing.
bool is_neutral(const GenerationField& field, const GenerationSettings& settings);
// Copies its value.
void copy_setting(const GenerationField& field, const GenerationSettings& from, GenerationSettings& to);

// Names a setting in errors: as the subject of a sentence ("top_k=3", "--top-k:"), or elsewhere in it.
using SettingName = std::function<std::string(const GenerationField& field, bool subject)>;

// Throws Error where settings exclude each other, or where one of those `given` (keys) cannot act: of drawing
// where outputs are searched for or the likeliest token is taken, of a search where there is none.
void check_acting(const GenerationSettings& settings, const std::set<std::string>& given, bool drawing,
                  bool searching, const SettingName& name);

// Throws Error naming an id, of the settings with these keys, that is none of so many tokens.
void check_ids(const GenerationSettings& settings, const std::set<std::string>& keys, int64_t vocab_size);

}  // namespace qkv

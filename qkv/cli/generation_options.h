// Options of the commands that write texts: those of infer/generation_settings.h.
#pragma once

#include <set>
#include <string>

#include "qkv/api/text_model.h"
#include "qkv/cli/options.h"

namespace qkv {

// The settings that the options of a command line give.
struct GenerationOptions {
  GenerationSettings settings = {};
  std::set<std::string> given = {};  // keys of GenerationFields
  bool stop_early = false;           // --stop-early
  std::string returned = {};         // the option for the number of outputs; empty: there is none
  bool shows_scores = false;         // the command prints the scores of a search

  bool has(const char* key) const { return given.contains(key); }
  // Notes which options of the command were given. Throws UsageError where one is out of its range.
  void take(const Command& command);
};

// How a command writes: its own settings over the model's.
struct Generation {
  GenerationSettings settings;
  bool searches = false;  // outputs are searched for, not drawn
};

// Fields that a command has an option for.
enum class GenerationKind {
  drawing,     // `qkv chat`
  of_prompts,  // `qkv generate`: no source that a search could look at
  of_sources,  // `qkv translate`
};

// Declares the options; `returned`: see GenerationOptions.
void add_generation_options(Command& command, GenerationOptions& options, GenerationKind kind,
                            const std::string& returned);

// The model's settings and over them those given. Outputs are searched for where an option of a search says
// so; drawn where one of drawing, or `draws` (the option's name; empty: none), does; else as the model's
// makers do, or `search_otherwise`. Throws UsageError where options contradict each other or cannot act.
Generation resolve_generation(const GenerationOptions& options, const TextModel& m, const std::string& draws,
                              bool search_otherwise);

// The tokens of a text that --suppress names: as it is spelt alone, and behind other text. Throws UsageError
// where the vocabulary does not spell it.
std::vector<std::vector<int32_t>> spellings_of(const std::string& text, const text::Tokenizer& tokenizer);

}  // namespace qkv

// Reads a model's default generation settings: generation_config.json.
#pragma once

#include <string>

#include "qkv/infer/generation_settings.h"

namespace qkv {

// Reads DIR/generation_config.json, if it exists, into `settings`: do_sample (false: the most likely token;
// absent: as in `settings`) and all of generation_fields(), except those that decide which outputs are
// returned. End tokens and forced_bos_token_id belong to SpecialIds. Throws Error naming file and field for
// mistyped values. Returns true if num_beams asks for a search. `refused`: set to a line naming file and
// field if an unsupported setting would change outputs.
bool read_generation_config(const std::string& dir, GenerationSettings& settings, std::string& refused);

}  // namespace qkv

// How a model's makers generate with it: generation_config.json.
#pragma once

#include <string>

#include "qkv/infer/generation_settings.h"

namespace qkv {

// Sets what DIR/generation_config.json says, where it is there, of do_sample (false: the most likely token;
// absent: as the settings have it) and of each of generation_fields(), but for what says which outputs come
// back. Ends of texts and forced_bos_token_id are SpecialIds'. Throws Error naming file and field for what is
// mistyped. Returns whether num_beams says to search. `refused`: what would change outputs and is not
// supported, a line that names file and field.
bool read_generation_config(const std::string& dir, GenerationSettings& settings, std::string& refused);

}  // namespace qkv

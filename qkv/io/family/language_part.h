// Multimodal checkpoints: the language model inside.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "qkv/base/json.h"

namespace qkv {

// A config.json of the language model alone: text_config, with the fields beside it that are about text.
// Nothing if `config` has no such part, if qkv reads the whole model, or if it does not read this language
// model.
std::optional<Json> language_part(const Json& config);

// The name that a tensor of a multimodal checkpoint has in the language model's own files; nothing if it
// belongs to another part.
std::optional<std::string> name_in_language_part(const std::string& name);

// The part of a multimodal checkpoint that a tensor belongs to: "vision_tower".
std::string part_of_tensor(const std::string& name);

}  // namespace qkv

// Other files of a model's directory, besides weights and tokenizer.
#pragma once

#include <optional>
#include <string>

#include "qkv/chat/chat_template.h"

namespace qkv {

// The chat template of the model in DIR, which may be an adapter's.
std::optional<text::ChatTemplate> chat_template_of(const std::string& dir);

// Copies from the model directory FROM into TO the files that TO lacks: the chat template
// (chat_template.jinja, or chat_template in tokenizer_config.json, with the special tokens that it names).
// Adds the fields that TO's generation_config.json lacks.
void keep_auxiliary_files(const std::string& from, const std::string& to);

}  // namespace qkv

// What a model's directory says besides its weights and its tokenizer.
#pragma once

#include <optional>
#include <string>

#include "qkv/chat/chat_template.h"

namespace qkv {

// How conversations are written for the model in DIR, which may be an adapter's.
std::optional<text::ChatTemplate> chat_template_of(const std::string& dir);

// Copies from the model directory FROM into TO what TO lacks: how conversations are written
// (chat_template.jinja, or chat_template in tokenizer_config.json, with the special tokens that it names),
// and the fields of generation_config.json.
void keep_auxiliary_files(const std::string& from, const std::string& to);

}  // namespace qkv

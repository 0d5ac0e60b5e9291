// Notes on stderr about a model that was loaded.
#pragma once

#include <string>

#include "qkv/models/transformer.h"

namespace qkv {

// Tells that only the language model of a multimodal checkpoint is used, and which parts are not.
void note_left_out(const std::string& dir, const Transformer& model);

}  // namespace qkv

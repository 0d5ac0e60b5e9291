// Notes on stderr about a model that was loaded.
#pragma once

#include <string>

#include "qkv/models/transformer.h"

namespace qkv {

// Tells what a GGUF file leaves unsaid, and which parts of a multimodal checkpoint are not used.
void print_model_notes(const std::string& dir, const Transformer& model);

}  // namespace qkv

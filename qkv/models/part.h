// One stack of an encoder-decoder as a model of its own.
#pragma once

#include <memory>

#include "qkv/models/transformer.h"

namespace qkv {

// A model of ModelSpec::part(stack) with the values that these parameters have in `model`, shared with it.
// Throws Error if there is no such part.
std::unique_ptr<Transformer> part_of(Transformer& model, Architecture stack);

}  // namespace qkv

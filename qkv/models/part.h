// Parts of a model as models of their own.
#pragma once

#include <memory>

#include "qkv/models/transformer.h"

namespace qkv {

// A model of ModelSpec::part(stack) with the values that these parameters have in `model`, shared with it.
// Throws Error if there is no such part.
std::unique_ptr<Transformer> part_of(Transformer& model, Architecture stack);
// The same model, with the same values, but without its modules of multi-token prediction.
std::unique_ptr<Transformer> without_mtp(Transformer& model);

}  // namespace qkv

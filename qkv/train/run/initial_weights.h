// The weights that a run begins with.
#pragma once

#include <memory>

#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/config/config.h"

namespace qkv {

// The model of a new run. Where config.from names another one, parameters that both have are copied; the
// classifier only where both tell the same classes, and rows of the vocabulary as new_tokens.h says.
// `tokenizer`: that of the run. Throws Error naming file and tensor where the other model cannot be read.
std::unique_ptr<Transformer> initial_model(const TrainConfig& config, const text::Tokenizer& tokenizer);

}  // namespace qkv

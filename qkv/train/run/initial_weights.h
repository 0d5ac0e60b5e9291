// Initial weights of a run.
#pragma once

#include <memory>

#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/config/config.h"

namespace qkv {

// The model of a new run. If config.from names another model, copies the parameters that both have. Copies
// the classifier only if both have the same classes, and rows of the vocabulary as new_tokens.h says.
// `tokenizer`: that of the run. Throws Error naming file and tensor if the other model cannot be read.
std::unique_ptr<Transformer> initial_model(const TrainConfig& config, const text::Tokenizer& tokenizer);

}  // namespace qkv

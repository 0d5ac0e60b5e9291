// DeepSeek-V2 and -V3: relatives of Llama with keys and values computed from a latent, and experts.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// `third`: V3, whose router scores are sigmoids, with a bias that affects only the choice.
ModelSpec read_deepseek(const JsonField& config, bool third);
OrderedJson write_deepseek(const ModelSpec& spec, const char* type, const char* architecture);

Family deepseek_like(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                     OrderedJson (*write)(const ModelSpec&));

}  // namespace qkv

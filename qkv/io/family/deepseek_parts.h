// DeepSeek-V2 and -V3: Llama's kin whose keys and values are made of a latent, with experts.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// `third`: the router scores by sigmoids, with a bias that only the choice sees.
ModelSpec read_deepseek(const JsonField& config, bool third);
OrderedJson write_deepseek(const ModelSpec& spec, const char* type, const char* architecture);

Family deepseek_like(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                     OrderedJson (*write)(const ModelSpec&));

}  // namespace qkv

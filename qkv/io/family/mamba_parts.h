// Shared parts of Mamba and Mamba-2: layers that are one mixer each, and no feed-forward network.
#pragma once

#include "qkv/io/family/hybrid_parts.h"

namespace qkv {

// The fields that their config.json files share. `tied`: where they do not tell.
ModelSpec read_mamba_like(const JsonField& config, bool tied);
OrderedJson write_mamba_like(const ModelSpec& spec, const char* type, const char* architecture);
Family mamba_like(const char* type, const char* language_model, bool (*expresses)(const ModelSpec&),
                  ModelSpec (*read)(const JsonField&), OrderedJson (*write)(const ModelSpec&));

}  // namespace qkv

// Shared parts of the versions of DeBERTa: encoders with disentangled attention.
#pragma once

#include "qkv/io/family/bert_parts.h"

namespace qkv {

// Reads and writes the fields that their config.json files share; `base`: prefix of the class names.
ModelSpec read_deberta(const JsonField& config, const std::string& base);
OrderedJson write_deberta(const ModelSpec& spec, const char* type, const std::string& base);
// The names of all weights; `add_attention` adds those of a layer's queries, keys, values and distances.
WeightNames deberta_stack(const ModelSpec& spec,
                          void (*add_attention)(WeightNames& names, const ModelSpec& spec,
                                                const std::string& engine, const std::string& file));
Family deberta_like(const char* type, ModelSpec (*read)(const JsonField&),
                    OrderedJson (*write)(const ModelSpec&),
                    std::vector<WeightName> (*weights)(const ModelSpec&));

}  // namespace qkv

// Shared parts of Qwen3-Next and Qwen3.5.
#pragma once

#include "qkv/io/family/hybrid_parts.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

// Values where their config.json files lack fields.
struct GatedHeads {
  int64_t heads, kv_heads, width;
};
struct LinearHeads {
  int64_t keys, values;
};

// The model as if all its layers were of gated attention and dense networks.
ModelSpec read_qwen3_next_like(const JsonField& config, const GatedHeads& otherwise);
GatedDeltaMixer read_gated_delta(const JsonField& config, const LinearHeads& otherwise);
// True for each layer of attention: layer_types, or every full_attention_interval-th.
std::vector<bool> read_full_layers(const JsonField& config, int64_t layers);
OrderedJson write_qwen3_next_like(const ModelSpec& spec, const char* type, const char* architecture);
Family qwen3_next_like(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                       OrderedJson (*write)(const ModelSpec&),
                       std::vector<WeightName> (*weights)(const ModelSpec&));

}  // namespace qkv

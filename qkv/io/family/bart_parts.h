// The pieces of BART and its kin, Marian and Whisper among them.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Reads and writes the names that their config.json files share; `context`: the number of positions.
ModelSpec read_bart_like(const JsonField& config, const char* context = "max_position_embeddings");
OrderedJson write_bart_like(const ModelSpec& spec, const char* type, const char* architecture);
// True if that says all, but for the positions, norms and features.
bool is_bart_like(const ModelSpec& spec);

void add_bart_blocks(const ModelSpec& spec, WeightNames& names);
// BART's tensors, with positions and a norm for the embeddings of each stack.
std::vector<WeightName> weights_named_as_bart(const ModelSpec& spec);
bool is_extra_in_bart(const ModelSpec& spec, const std::string& name);
// Marian's, whose sinusoids some files carry.
std::vector<WeightName> weights_named_as_marian(const ModelSpec& spec);
bool is_extra_in_marian(const ModelSpec& spec, const std::string& name);

}  // namespace qkv

// Shared parts of BART and its relatives, including Marian and Whisper.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Reads and writes the fields that their config.json files share; `context`: the key of the number of
// positions.
ModelSpec read_bart_like(const JsonField& config, const char* context = "max_position_embeddings");
OrderedJson write_bart_like(const ModelSpec& spec, const char* type, const char* architecture);
// True if those fields describe the whole spec, except for positions, norms and features.
bool is_bart_like(const ModelSpec& spec);

// The logits' bias and, unless it is tied, the unembedding.
void add_bart_unembedding(const ModelSpec& spec, WeightNames& names);
// The parts of names that may differ from BART's: the first word, and those of an encoder's self-attention.
struct BartNames {
  const char* base = "model";
  const char *query = "self_attn.q_proj", *key = "self_attn.k_proj", *value = "self_attn.v_proj",
             *out = "self_attn.out_proj";
};
void add_bart_blocks(const ModelSpec& spec, WeightNames& names, const BartNames& encoder = {});
// BART's tensors, with positions and a norm for the embeddings of each stack.
std::vector<WeightName> weights_named_as_bart(const ModelSpec& spec);
bool is_extra_in_bart(const ModelSpec& spec, const std::string& name);
// Marian's tensors; some files contain its sinusoids.
std::vector<WeightName> weights_named_as_marian(const ModelSpec& spec);
bool is_extra_in_marian(const ModelSpec& spec, const std::string& name);

}  // namespace qkv

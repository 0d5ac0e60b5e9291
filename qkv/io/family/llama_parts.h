// The pieces of Llama's kin: tensors that are called model.layers.N.self_attn.q_proj, and a config.json with
// the same keys.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Reads and writes the names that their config.json files share.
ModelSpec read_llama_like(const JsonField& config);
OrderedJson write_llama_like(const ModelSpec& spec, const char* type, const char* architecture);
// Heads of keys and values, of which the family has `otherwise` when nothing is said; null: as many as of
// queries.
int64_t read_kv_heads(const JsonField& config, int64_t heads, int64_t otherwise);

// The parts of names that may be other than Llama's.
struct LlamaNames {
  std::vector<std::string> query_key_norms = {"q_norm", "k_norm"};
  const char* out = "o_proj";
  const char* attention_norm = "input_layernorm";
  const char* feed_forward_norm = "post_attention_layernorm";
  const char* attention_branch_norm = nullptr;
  const char* feed_forward_branch_norm = nullptr;
  std::vector<std::string> up = {"gate_proj", "up_proj"};
  const char* down = "down_proj";
  const char* last_norm = "model.norm";
  bool fused = false;  // qkv_proj and gate_up_proj
  // Those of mixtures of experts.
  const char* mixture = "mlp";
  std::vector<std::string> expert = {"gate_proj", "up_proj", "down_proj"};
  const char* shared = "shared_expert";
  // For an attention that is made otherwise: adds its tensors but for the output's.
  void (*attention)(WeightNames& names, const ModelSpec& spec, const std::string& engine,
                    const std::string& file) = nullptr;
};

// The names of a model's weights in such files.
std::vector<WeightName> weights_named_as_llama(const ModelSpec& spec, const LlamaNames& names);

// Tensors that files have beside these: frequencies, and a tied unembedding once more.
bool is_extra_in_llama(const ModelSpec& spec, const std::string& name);

// The names that published code gives a decoder's class and the tensor of its classes ("": it has none).
struct DecoderClass {
  const char* language_model;
  const char* classifier = "score";
};

std::vector<WeightName> llama_weights(const ModelSpec& spec);
// A family of such decoders: what is read and written beside the shared keys, and its names of tensors.
Family llama_like(const char* type, const DecoderClass& its, ModelSpec (*read)(const JsonField&),
                  OrderedJson (*write)(const ModelSpec&),
                  std::vector<WeightName> (*weights)(const ModelSpec&) = llama_weights);

}  // namespace qkv

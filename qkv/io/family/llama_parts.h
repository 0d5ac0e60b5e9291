// Shared parts of Llama's relatives: tensors named model.layers.N.self_attn.q_proj and so on, and a
// config.json with the same keys.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Reads and writes the fields that their config.json files share. `activation`: whatever hidden_act says.
ModelSpec read_llama_like(const JsonField& config);
ModelSpec read_llama_like(const JsonField& config, Activation activation);
OrderedJson write_llama_like(const ModelSpec& spec, const char* type, const char* architecture);
// Number of heads of keys and values; `otherwise` if the field is absent; if it is null, as many as of
// queries.
int64_t read_kv_heads(const JsonField& config, int64_t heads, int64_t otherwise);

// Reads head_dim: the width of queries, keys, values and of what is rotated. `otherwise`: if the field is
// absent; if it is null, width / heads.
void read_head_width(const JsonField& config, int64_t otherwise, ModelSpec& spec);
// Mixtral's fields of a mixture whose experts have the hidden width of the dense network. `otherwise`: what
// holds where fields are absent.
struct LocalExperts {
  int64_t count = 8, chosen = 2;
  float balance = 0.001F;
};
void read_local_experts(const JsonField& config, ModelSpec& spec, const LocalExperts& otherwise = {});
void write_local_experts(const ModelSpec& spec, OrderedJson& config);
// query_pre_attn_scalar: scores are divided by its root.
void read_query_scalar(const JsonField& config, AttentionSpec& attention);
double query_scalar(const AttentionSpec& attention);

// The parts of names that may differ from Llama's.
struct LlamaNames {
  std::vector<std::string> query_key_norms = {"q_norm", "k_norm"};
  const char* out = "o_proj";
  const char* attention_norm = "input_layernorm";
  const char* feed_forward_norm = "post_attention_layernorm";
  const char* attention_branch_norm = nullptr;
  const char* feed_forward_branch_norm = nullptr;
  std::vector<std::string> up = {"gate_proj", "up_proj"};
  const char* down = "down_proj";
  const char* network = "mlp";  // the feed-forward network in layers without experts
  const char* last_norm = "model.norm";
  bool fused = false;  // has qkv_proj and gate_up_proj
  // Names of mixtures of experts.
  const char* mixture = "mlp";
  const char* router = "gate";
  const char* choice_bias = "gate.e_score_correction_bias";
  bool choice_bias_in_row = false;  // stored as [1, E]
  std::vector<std::string> expert = {"gate_proj", "up_proj", "down_proj"};
  // All experts in two tensors named by `expert`, [E, 2 hidden, D] and [E, D, hidden] or, if transposed,
  // [E, D, 2 hidden] and [E, hidden, D], with the rows of both halves in turn if interleaved.
  bool stacked_experts = false, transposed_experts = false, interleaved_experts = false;
  const char* shared = "shared_expert";
  // For layers whose mixer does not attend: adds its tensors, `engine`: "decoder.block.0.mamba.", `file`:
  // "model.layers.0.".
  void (*mixer)(WeightNames& names, const ModelSpec& spec, const BlockSpec& block, const std::string& engine,
                const std::string& file) = nullptr;
  // For another kind of attention: adds its tensors, except for the output's.
  void (*attention)(WeightNames& names, const ModelSpec& spec, const std::string& engine,
                    const std::string& file) = nullptr;
};

// The names of a model's weights in such files.
std::vector<WeightName> weights_named_as_llama(const ModelSpec& spec, const LlamaNames& names);

// Other tensors in files: frequencies, and a second copy of a tied unembedding.
bool is_extra_in_llama(const ModelSpec& spec, const std::string& name);

// Multi-token prediction as DeepSeek-V3 and GLM-4.5 have it: num_nextn_predict_layers joined modules, in
// layers behind the last one, whose files repeat the embedding and the unembedding.
void read_mtp(const JsonField& config, ModelSpec& spec);
void write_mtp(const ModelSpec& spec, OrderedJson& config);
std::vector<TensorCopy> mtp_copies(const ModelSpec& spec);
// is_extra_in_llama() for such families. True also for modules that the spec does not have.
bool is_extra_or_predicts_further(const ModelSpec& spec, const std::string& name);

// The names of a decoder's class and of its classifier's tensor in published code ("": it has none).
struct DecoderClass {
  const char* language_model;
  const char* classifier = "score";
};

std::vector<WeightName> llama_weights(const ModelSpec& spec);
// A family of such decoders: reads and writes settings besides the shared keys, and has its own tensor
// names.
Family llama_like(const char* type, const DecoderClass& its, ModelSpec (*read)(const JsonField&),
                  OrderedJson (*write)(const ModelSpec&),
                  std::vector<WeightName> (*weights)(const ModelSpec&) = llama_weights);

}  // namespace qkv

// Shared parts of decoders like GPT-2 with other tensor names: OPT, GPT-NeoX, BLOOM, MPT, ....
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// Keys of the sizes in a config.json.
struct SizeKeys {
  const char *width, *layers, *heads;
};
inline constexpr SizeKeys kGpt2Sizes = {"n_embd", "n_layer", "n_head"};
inline constexpr SizeKeys kUsualSizes = {"hidden_size", "num_hidden_layers", "num_attention_heads"};

// A decoder of these sizes, with a feed-forward network four times as wide.
ModelSpec read_gpt_like(const JsonField& config, const SizeKeys& keys);
OrderedJson write_gpt_like(const ModelSpec& spec, const char* type, const char* architecture,
                           const SizeKeys& keys);

// Keys of the dropouts in a config.json; null if it lacks one.
struct DropoutKeys {
  const char *attention = nullptr, *embedding = nullptr, *residual = nullptr;
};
inline constexpr DropoutKeys kGpt2Dropouts = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
inline constexpr DropoutKeys kHiddenDropouts = {.attention = "attention_dropout",
                                                .residual = "hidden_dropout"};

void read_dropouts(const JsonField& config, const DropoutKeys& keys, float otherwise, ModelSpec& spec);
void write_dropouts(const ModelSpec& spec, const DropoutKeys& keys, OrderedJson& config);

// The tensors of a block, by their names after that of the block.
struct GptBlockNames {
  std::string norm, second_norm;  // second: norm of the feed-forward network, if it has one
  std::vector<std::string> qkv;   // one fused projection or three
  std::string out, up, down;
  bool grouped = false;  // the fused one has a group for each kv head: its queries, its key and its value
};
// Names of Megatron-LM's models; `attention`: name of the attention.
GptBlockNames megatron_block(const std::string& attention);
// Names of fairseq's models.
GptBlockNames fairseq_block();

// The tensors of a model.
struct GptNames {
  const char* embedding = "transformer.wte.weight";
  const char* layers = "transformer.h.";  // a block's name is this, its index and a dot
  GptBlockNames block;
  const char* last_norm = "transformer.ln_f";
  const char* unembedding = "lm_head.weight";
};
WeightNames weights_named_as_gpt(const ModelSpec& spec, const GptNames& names);
// Adds the blocks, or one norm.
void add_gpt_blocks(WeightNames& names, const ModelSpec& spec, const std::string& layers,
                    const GptBlockNames& block);
void add_gpt_norm(WeightNames& names, const ModelSpec& spec, const std::string& engine,
                  const std::string& file);

// True for masks and frequencies that files contain, and for a second copy of a tied unembedding.
bool is_extra_in_gpt(const ModelSpec& spec, const std::string& name);

// A family of such decoders; `classifier` is as in Family.
Family gpt_like(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                OrderedJson (*write)(const ModelSpec&), std::vector<WeightName> (*weights)(const ModelSpec&),
                const char* prefix = "transformer.", const char* classifier = "score");

}  // namespace qkv

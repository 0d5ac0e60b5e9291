// The pieces of decoders after GPT-2 that name their tensors in ways of their own: OPT, GPT-NeoX, BLOOM, MPT,
// ....
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// The names of a config.json's sizes.
struct SizeKeys {
  const char *width, *layers, *heads;
};
inline constexpr SizeKeys kGpt2Sizes = {"n_embd", "n_layer", "n_head"};
inline constexpr SizeKeys kUsualSizes = {"hidden_size", "num_hidden_layers", "num_attention_heads"};

// A decoder of these sizes, with four times its width for the feed-forward network.
ModelSpec read_gpt_like(const JsonField& config, const SizeKeys& keys);
OrderedJson write_gpt_like(const ModelSpec& spec, const char* type, const char* architecture,
                           const SizeKeys& keys);

// The names of a config.json's dropouts; null: it has none there.
struct DropoutKeys {
  const char *attention = nullptr, *embedding = nullptr, *residual = nullptr;
};
inline constexpr DropoutKeys kGpt2Dropouts = {"attn_pdrop", "embd_pdrop", "resid_pdrop"};
inline constexpr DropoutKeys kHiddenDropouts = {.attention = "attention_dropout",
                                                .residual = "hidden_dropout"};

void read_dropouts(const JsonField& config, const DropoutKeys& keys, float otherwise, ModelSpec& spec);
void write_dropouts(const ModelSpec& spec, const DropoutKeys& keys, OrderedJson& config);

// The tensors of a block, behind the block's own name.
struct GptBlockNames {
  std::string norm, second_norm;  // second: of the feed-forward network, if it has one
  std::vector<std::string> qkv;   // one fused projection or three
  std::string out, up, down;
  bool grouped = false;  // the fused one is in groups: for each kv head its queries, its key and its value
};
// Those of Megatron-LM's models, whose attention is called this.
GptBlockNames megatron_block(const std::string& attention);
// Those of fairseq's.
GptBlockNames fairseq_block();

// The tensors of a model.
struct GptNames {
  const char* embedding = "transformer.wte.weight";
  const char* layers = "transformer.h.";  // a block's name is this, its number and a dot
  GptBlockNames block;
  const char* last_norm = "transformer.ln_f";
  const char* unembedding = "lm_head.weight";
};
WeightNames weights_named_as_gpt(const ModelSpec& spec, const GptNames& names);
// The blocks alone, and one norm.
void add_gpt_blocks(WeightNames& names, const ModelSpec& spec, const std::string& layers,
                    const GptBlockNames& block);
void add_gpt_norm(WeightNames& names, const ModelSpec& spec, const std::string& engine,
                  const std::string& file);

// True for masks and frequencies that files carry, and for a tied unembedding once more.
bool is_extra_in_gpt(const ModelSpec& spec, const std::string& name);

// A family of such decoders, with `classifier` as Family has it.
Family gpt_like(const char* type, const char* language_model, ModelSpec (*read)(const JsonField&),
                OrderedJson (*write)(const ModelSpec&), std::vector<WeightName> (*weights)(const ModelSpec&),
                const char* prefix = "transformer.", const char* classifier = "score");

}  // namespace qkv

// GPT-NeoX and Pythia: Hugging Face's GPTNeoXForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

ModelSpec read_gpt_neox(const JsonField& c) {
  ModelSpec s = read_gpt_like(c, kUsualSizes);
  s.context = c["max_position_embeddings"].integer(1, kMost);
  s.hidden = c["intermediate_size"].integer(0, kMost);
  s.activation = read_activation(c, "hidden_act", "gelu");
  s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
  s.attention.bias = s.attention.out_bias = c.boolean_or("attention_bias", true);
  s.branches = c.boolean_or("use_parallel_residual", true) ? Branches::parallel : Branches::serial;
  s.positions = Positions::rotary;
  RotarySpec& r = s.attention.rotary;
  r.width = read_rotated(c, "rotary_pct", 0.25, s.attention.d_qk);
  r.base = c.number_or("rotary_emb_base", 10000);
  read_rotary_scaling(c, s.context, r);
  s.tied = c.boolean_or("tie_word_embeddings", false);
  read_dropouts(c, kHiddenDropouts, 0, s);
  s.embedding_dropout = s.residual_dropout;
  return s;
}

OrderedJson write_gpt_neox(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "gpt_neox", "GPTNeoXForCausalLM", kUsualSizes);
  c["max_position_embeddings"] = s.context;
  c["intermediate_size"] = s.hidden;
  c["hidden_act"] = config_name_of(s.activation);
  c["layer_norm_eps"] = decimal(s.norm_epsilon);
  c["attention_bias"] = s.attention.bias;
  c["use_parallel_residual"] = s.branches == Branches::parallel;
  c["rotary_pct"] = rotated_part(s.attention);
  c["rotary_emb_base"] = s.attention.rotary.base;
  write_rotary_scaling(s.attention.rotary, c);
  write_dropouts(s, kHiddenDropouts, c);
  return c;
}

std::vector<WeightName> gpt_neox_weights(const ModelSpec& s) {
  GptBlockNames block = megatron_block("attention");
  block.grouped = true;
  return weights_named_as_gpt(s, {.embedding = "gpt_neox.embed_in.weight",
                                  .layers = "gpt_neox.layers.",
                                  .block = block,
                                  .last_norm = "gpt_neox.final_layer_norm",
                                  .unembedding = "embed_out.weight"})
      .all;
}

}  // namespace

const Family& gpt_neox_family() {
  static const Family family = gpt_like("gpt_neox", "GPTNeoXForCausalLM", read_gpt_neox, write_gpt_neox,
                                        gpt_neox_weights, "gpt_neox.");
  return family;
}

}  // namespace qkv

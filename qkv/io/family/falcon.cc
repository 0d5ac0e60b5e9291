// Falcon: Hugging Face's FalconForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

ModelSpec read_falcon(const JsonField& c) {
  ModelSpec s = read_gpt_like(c, kUsualSizes);
  s.context = c.integer_or("max_position_embeddings", 2048, 1, kMost);
  s.hidden = c.integer_or("ffn_hidden_size", 4 * s.width, 0, kMost);
  s.activation = read_activation(c, "activation", "gelu");
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.attention.bias = s.attention.out_bias = s.feed_forward_bias = c.boolean_or("bias", false);
  const bool grouped = c.boolean_or("new_decoder_architecture", false);
  if (grouped)
    s.attention.kv_heads = c.integer_or("num_kv_heads", s.attention.heads, 1, kMost);
  else if (c.boolean_or("multi_query", true))
    s.attention.kv_heads = 1;
  const bool two_norms = grouped && c.integer_or("num_ln_in_parallel_attn", 2, 1, 2) == 2;
  s.branches = two_norms                             ? Branches::parallel
               : c.boolean_or("parallel_attn", true) ? Branches::one_norm
                                                     : Branches::serial;
  if (c.boolean_or("alibi", false)) {
    s.positions = Positions::alibi_scaled;
  } else {
    s.positions = Positions::rotary;
    s.attention.rotary.width = s.attention.d_qk;
    s.attention.rotary.base = c.number_or("rope_theta", 10000);
    read_rotary_scaling(c, s.context, s.attention.rotary);
  }
  read_dropouts(c, kHiddenDropouts, 0, s);
  return s;
}

OrderedJson write_falcon(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "falcon", "FalconForCausalLM", kUsualSizes);
  const bool multi_query = s.attention.kv_heads == 1 && s.branches != Branches::parallel;
  const bool grouped = s.branches == Branches::parallel ||
                       (s.attention.kv_heads > 1 && s.attention.kv_heads < s.attention.heads);
  c["max_position_embeddings"] = s.context;
  c["ffn_hidden_size"] = s.hidden;
  c["activation"] = config_name_of(s.activation);
  c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
  c["bias"] = s.attention.bias;
  c["alibi"] = s.positions == Positions::alibi_scaled;
  c["new_decoder_architecture"] = grouped;
  c["multi_query"] = multi_query;
  c["num_kv_heads"] = s.attention.kv_heads;
  c["num_ln_in_parallel_attn"] = s.branches == Branches::parallel ? 2 : 1;
  c["parallel_attn"] = s.branches != Branches::serial;
  c["rope_theta"] = s.attention.rotary.base;
  write_rotary_scaling(s.attention.rotary, c);
  write_dropouts(s, kHiddenDropouts, c);
  return c;
}

std::vector<WeightName> falcon_weights(const ModelSpec& s) {
  GptBlockNames block = megatron_block("self_attention");
  if (s.branches == Branches::parallel)
    block.norm = "ln_attn", block.second_norm = "ln_mlp";
  else if (s.branches != Branches::serial)
    block.second_norm.clear();
  block.grouped = s.attention.kv_heads > 1;
  return weights_named_as_gpt(s, {.embedding = "transformer.word_embeddings.weight", .block = block}).all;
}

}  // namespace

const Family& falcon_family() {
  static const Family family =
      gpt_like("falcon", "FalconForCausalLM", read_falcon, write_falcon, falcon_weights);
  return family;
}

}  // namespace qkv

// SantaCoder and StarCoder: Hugging Face's GPTBigCodeForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

ModelSpec read_gpt_bigcode(const JsonField& c) {
  ModelSpec s = read_gpt_like(c, kGpt2Sizes);
  s.context = c["n_positions"].integer(1, kMost);
  s.hidden = c.integer_or("n_inner", 4 * s.width, 0, kMost);
  s.activation = read_activation(c, "activation_function", "gelu_pytorch_tanh");
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.attention.scaled = c.boolean_or("scale_attn_weights", true);
  if (c.boolean_or("multi_query", true)) s.attention.kv_heads = 1;
  read_dropouts(c, kGpt2Dropouts, 0.1F, s);
  return s;
}

OrderedJson write_gpt_bigcode(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "gpt_bigcode", "GPTBigCodeForCausalLM", kGpt2Sizes);
  c["n_positions"] = s.context;
  c["n_inner"] = s.hidden;
  c["activation_function"] =
      s.activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : config_name_of(s.activation);
  c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
  c["scale_attn_weights"] = s.attention.scaled;
  c["multi_query"] = s.attention.kv_heads == 1;
  write_dropouts(s, kGpt2Dropouts, c);
  return c;
}

std::vector<WeightName> gpt_bigcode_weights(const ModelSpec& s) {
  WeightNames n = weights_named_as_gpt(s, {.block = {"ln_1",
                                                     "ln_2",
                                                     {"attn.c_attn"},
                                                     "attn.c_proj",
                                                     "mlp.c_fc",
                                                     "mlp.c_proj",
                                                     s.attention.kv_heads > 1}});
  n.tensor("embedding.position", "transformer.wpe.weight");
  return n.all;
}

}  // namespace

const Family& gpt_bigcode_family() {
  static const Family family = gpt_like("gpt_bigcode", "GPTBigCodeForCausalLM", read_gpt_bigcode,
                                        write_gpt_bigcode, gpt_bigcode_weights);
  return family;
}

}  // namespace qkv

// GPT-J: Hugging Face's GPTJForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

ModelSpec read_gptj(const JsonField& c) {
  ModelSpec s = read_gpt_like(c, kGpt2Sizes);
  s.context = c["n_positions"].integer(1, kMost);
  s.hidden = c.integer_or("n_inner", 4 * s.width, 0, kMost);
  s.activation = read_activation(c, "activation_function", "gelu_new");
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.attention.bias = s.attention.out_bias = false;
  s.branches = Branches::one_norm;
  s.positions = Positions::rotary;
  s.attention.rotary.width = c.integer_or("rotary_dim", s.attention.d_qk, 2, kMost);
  s.attention.rotary.layout = RotaryLayout::interleaved;
  s.tied = c.boolean_or("tie_word_embeddings", false);
  s.unembedding_bias = true;
  read_dropouts(c, kGpt2Dropouts, 0, s);
  return s;
}

OrderedJson write_gptj(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "gptj", "GPTJForCausalLM", kGpt2Sizes);
  c["n_positions"] = s.context;
  c["n_inner"] = s.hidden;
  c["activation_function"] = config_name_of(s.activation);
  c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
  c["rotary_dim"] = s.attention.rotary.width;
  write_dropouts(s, kGpt2Dropouts, c);
  return c;
}

std::vector<WeightName> gptj_weights(const ModelSpec& s) {
  WeightNames n = weights_named_as_gpt(s, {.block = {"ln_1",
                                                     "",
                                                     {"attn.q_proj", "attn.k_proj", "attn.v_proj"},
                                                     "attn.out_proj",
                                                     "mlp.fc_in",
                                                     "mlp.fc_out"}});
  n.tensor("unembedding.bias", "lm_head.bias");
  return n.all;
}

}  // namespace

const Family& gptj_family() {
  static const Family family = gpt_like("gptj", "GPTJForCausalLM", read_gptj, write_gptj, gptj_weights);
  return family;
}

}  // namespace qkv

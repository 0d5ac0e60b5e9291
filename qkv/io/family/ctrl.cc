// CTRL: Hugging Face's CTRLLMHeadModel.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

constexpr DropoutKeys kCtrlDropouts = {.embedding = "embd_pdrop", .residual = "resid_pdrop"};

ModelSpec read_ctrl(const JsonField& c) {
  ModelSpec s = read_gpt_like(c, kGpt2Sizes);
  s.context = c["n_positions"].integer(1, kMost);
  s.hidden = c["dff"].integer(0, kMost);
  s.activation = Activation::relu;
  s.norm_epsilon = 1e-6F;  // fixed in the blocks
  check(c.number_or("layer_norm_epsilon", 1e-6F) == s.norm_epsilon,
        "{}: layer_norm_epsilon: only 1e-06 is supported, which the blocks have", c.place());
  s.positions = Positions::sinusoidal_halves;
  s.embedding_scaled = s.unembedding_bias = true;
  read_dropouts(c, kCtrlDropouts, 0.1F, s);
  return s;
}

OrderedJson write_ctrl(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "ctrl", "CTRLLMHeadModel", kGpt2Sizes);
  c["n_positions"] = s.context;
  c["dff"] = s.hidden;
  c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
  write_dropouts(s, kCtrlDropouts, c);
  return c;
}

std::vector<WeightName> ctrl_weights(const ModelSpec& s) {
  const std::string a = "multi_head_attention.";
  WeightNames n = weights_named_as_gpt(
      s,
      {.embedding = "transformer.w.weight",
       .block = {"layernorm1", "layernorm2", {a + "Wq", a + "Wk", a + "Wv"}, a + "dense", "ffn.0", "ffn.2"},
       .last_norm = "transformer.layernorm"});
  n.tensor("unembedding.bias", "lm_head.bias");
  return n.all;
}

}  // namespace

const Family& ctrl_family() {
  static const Family family =
      gpt_like("ctrl", "CTRLLMHeadModel", read_ctrl, write_ctrl, ctrl_weights, "transformer.", "classifier");
  return family;
}

}  // namespace qkv

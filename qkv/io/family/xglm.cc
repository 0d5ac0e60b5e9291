// XGLM: Hugging Face's XGLMForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

constexpr SizeKeys kXglmSizes = {"d_model", "num_layers", "attention_heads"};

ModelSpec read_xglm(const JsonField& c) {
  // Row pad_token_id of the table is zero, and positions begin at row 2.
  check(c.integer_or("pad_token_id", 1, 0, kMost) <= 1,
        "{}: pad_token_id: only 0 and 1 are supported, which no position has", c.place());
  ModelSpec s = read_gpt_like(c, kXglmSizes);
  s.context = c["max_position_embeddings"].integer(1, kMost);
  s.hidden = c["ffn_dim"].integer(0, kMost);
  s.activation = read_activation(c, "activation_function", "gelu");
  s.positions = Positions::sinusoidal_closed;
  s.embedding_scaled = c.boolean_or("scale_embedding", true);
  s.attention.dropout = c.number_or("attention_dropout", 0.1F);
  s.embedding_dropout = s.residual_dropout = c.number_or("dropout", 0.1F);
  s.init_std = c.number_or("init_std", 0.02F);
  return s;
}

OrderedJson write_xglm(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "xglm", "XGLMForCausalLM", kXglmSizes);
  c.erase("initializer_range");
  c["init_std"] = decimal(s.init_std);
  c["max_position_embeddings"] = s.context;
  c["ffn_dim"] = s.hidden;
  c["activation_function"] = config_name_of(s.activation);
  c["scale_embedding"] = s.embedding_scaled;
  c["pad_token_id"] = 1;
  c["attention_dropout"] = decimal(s.attention.dropout);
  c["dropout"] = decimal(s.residual_dropout);
  return c;
}

std::vector<WeightName> xglm_weights(const ModelSpec& s) {
  return weights_named_as_gpt(s, {.embedding = "model.embed_tokens.weight",
                                  .layers = "model.layers.",
                                  .block = fairseq_block(),
                                  .last_norm = "model.layer_norm"})
      .all;
}

bool is_extra_of_xglm(const ModelSpec& s, const std::string& name) {
  return name == "model.embed_positions.weights" || (s.tied && name == "lm_head.weight");
}

}  // namespace

const Family& xglm_family() {
  static const Family family = [] {
    Family f = gpt_like("xglm", "XGLMForCausalLM", read_xglm, write_xglm, xglm_weights, "model.", "");
    f.ignores = is_extra_of_xglm;
    return f;
  }();
  return family;
}

}  // namespace qkv

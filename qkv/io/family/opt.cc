// OPT: Hugging Face's OPTForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

constexpr int64_t kUnusedByOpt = 2;  // positions count from 2

ModelSpec read_opt(const JsonField& c) {
  ModelSpec s = read_gpt_like(c, kUsualSizes);
  s.context = c["max_position_embeddings"].integer(1, kMost);
  s.hidden = c["ffn_dim"].integer(0, kMost);
  s.activation = read_activation(c, "activation_function", "relu");
  s.norm_placement = c.boolean_or("do_layer_norm_before", true) ? NormPlacement::pre : NormPlacement::post;
  s.final_norm = s.norm_placement == NormPlacement::post || !c.boolean_or("_remove_final_layer_norm", false);
  s.attention.bias = s.attention.out_bias = s.feed_forward_bias = c.boolean_or("enable_bias", true);
  s.normalization =
      c.boolean_or("layer_norm_elementwise_affine", true) ? Normalization::layer : Normalization::layer_plain;
  if (const int64_t e = c.integer_or("word_embed_proj_dim", s.width, 1, kMost); e != s.width)
    s.embedding_width = e;
  s.attention.dropout = c.number_or("attention_dropout", 0);
  s.residual_dropout = c.number_or("dropout", 0.1F);
  s.init_std = c.number_or("init_std", 0.02F);
  return s;
}

OrderedJson write_opt(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "opt", "OPTForCausalLM", kUsualSizes);
  c["max_position_embeddings"] = s.context;
  c["ffn_dim"] = s.hidden;
  c["activation_function"] = config_name_of(s.activation);
  c["do_layer_norm_before"] = s.norm_placement == NormPlacement::pre;
  if (!s.final_norm) c["_remove_final_layer_norm"] = true;
  c["enable_bias"] = s.attention.bias;
  c["layer_norm_elementwise_affine"] = s.normalization == Normalization::layer;
  c["word_embed_proj_dim"] = s.embedding_width > 0 ? s.embedding_width : s.width;
  c["attention_dropout"] = decimal(s.attention.dropout);
  c["dropout"] = decimal(s.residual_dropout);
  c["init_std"] = decimal(s.init_std);
  return c;
}

std::vector<WeightName> opt_weights(const ModelSpec& s) {
  WeightNames n;
  const std::string d = "model.decoder.";
  n.tensor("embedding.token", d + "embed_tokens.weight");
  n.all.push_back({"embedding.position", d + "embed_positions.weight", false, 0, 0, kUnusedByOpt});
  add_gpt_blocks(n, s, d + "layers.", fairseq_block());
  if (s.ends_with_norm()) add_gpt_norm(n, s, "decoder.norm", d + "final_layer_norm");
  if (s.embedding_width > 0) {
    n.tensor("embedding.projection.weight", d + "project_in.weight");
    n.tensor("unembedding.projection.weight", d + "project_out.weight");
  }
  n.untied(s, "lm_head.weight");
  return n.all;
}

}  // namespace

const Family& opt_family() {
  static const Family family = [] {
    Family f = gpt_like("opt", "OPTForCausalLM", read_opt, write_opt, opt_weights, "model.");
    f.ignores = [](const ModelSpec& s, const std::string& name) {
      return s.tied && name == "lm_head.weight";
    };
    return f;
  }();
  return family;
}

}  // namespace qkv

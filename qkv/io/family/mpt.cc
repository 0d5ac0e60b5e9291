// MPT: Hugging Face's MptForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/gpt_parts.h"

namespace qkv {
namespace {

constexpr SizeKeys kMptSizes = {"d_model", "n_layers", "n_heads"};
constexpr DropoutKeys kMptDropouts = {.embedding = "emb_pdrop", .residual = "resid_pdrop"};

ModelSpec read_mpt(const JsonField& c) {
  ModelSpec s = read_gpt_like(c, kMptSizes);
  check(c.boolean_or("no_bias", true), "{}: no_bias: only true is supported", c.place());
  s.context = c["max_seq_len"].integer(1, kMost);
  s.hidden = 4 * s.width;  // the published code ignores expansion_ratio
  s.activation = Activation::gelu;
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.normalization = Normalization::layer_scale;
  s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
  s.positions = Positions::alibi_evens_first;
  if (const auto attention = c.find("attn_config")) {
    check(attention->boolean_or("alibi", true), "{}: alibi: only true is supported", attention->place());
    check(!attention->boolean_or("qk_ln", false), "{}: qk_ln: only false is supported", attention->place());
    s.attention.clip = attention->number_or("clip_qkv", 0);
    check(attention->integer_or("alibi_bias_max", 8, 0, kMost) == 8,
          "{}: alibi_bias_max: only 8 is supported", attention->place());
    s.attention.scale = attention->number_or("softmax_scale", 0);
    s.attention.dropout = attention->number_or("attn_pdrop", 0);
  }
  read_dropouts(c, kMptDropouts, 0, s);
  return s;
}

OrderedJson write_mpt(const ModelSpec& s) {
  OrderedJson c = write_gpt_like(s, "mpt", "MptForCausalLM", kMptSizes);
  c["max_seq_len"] = s.context;
  c["expansion_ratio"] = 4;
  c["layer_norm_epsilon"] = decimal(s.norm_epsilon);
  c["no_bias"] = true;
  c["attn_config"] = {{"alibi", true}, {"attn_pdrop", decimal(s.attention.dropout)}};
  if (s.attention.scale > 0) c["attn_config"]["softmax_scale"] = decimal(s.attention.scale);
  if (s.attention.clip > 0) c["attn_config"]["clip_qkv"] = decimal(s.attention.clip);
  write_dropouts(s, kMptDropouts, c);
  return c;
}

std::vector<WeightName> mpt_weights(const ModelSpec& s) {
  return weights_named_as_gpt(
             s,
             {.layers = "transformer.blocks.",
              .block = {"norm_1", "norm_2", {"attn.Wqkv"}, "attn.out_proj", "ffn.up_proj", "ffn.down_proj"},
              .last_norm = "transformer.norm_f"})
      .all;
}

}  // namespace

const Family& mpt_family() {
  static const Family family = gpt_like("mpt", "MptForCausalLM", read_mpt, write_mpt, mpt_weights);
  return family;
}

}  // namespace qkv

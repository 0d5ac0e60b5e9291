// Seed-OSS: Hugging Face's SeedOssForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& seed_oss_family() {
  static const Family family = llama_like(
      "seed_oss", {"SeedOssForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 8);
        read_head_width(c, 128, s);
        a.bias = c.boolean_or("attention_bias", true);
        a.out_bias = c.boolean_or("attention_out_bias", false);
        a.dropout = c.number_or("attention_dropout", 0.1F);
        s.residual_dropout = c.number_or("residual_dropout", 0.1F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "seed_oss", "SeedOssForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        c["attention_out_bias"] = s.attention.out_bias;
        c["mlp_bias"] = s.feed_forward_bias;
        c["residual_dropout"] = decimal(s.residual_dropout);
        return c;
      });
  return family;
}

}  // namespace qkv

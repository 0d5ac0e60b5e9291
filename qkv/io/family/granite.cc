// Granite: Hugging Face's GraniteForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& granite_family() {
  static const Family family = llama_like(
      "granite", {"GraniteForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.attention.scale = c.number_or("attention_multiplier", 1);
        s.embedding_multiplier = c.number_or("embedding_multiplier", 1);
        s.residual_multiplier = c.number_or("residual_multiplier", 1);
        s.logit_multiplier = 1 / c.number_or("logits_scaling", 1);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "granite", "GraniteForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        c["mlp_bias"] = s.feed_forward_bias;
        c["attention_multiplier"] = decimal(s.attention.scale);
        c["embedding_multiplier"] = decimal(s.embedding_multiplier);
        c["residual_multiplier"] = decimal(s.residual_multiplier);
        c["logits_scaling"] = decimal(1 / s.logit_multiplier);
        return c;
      });
  return family;
}

}  // namespace qkv

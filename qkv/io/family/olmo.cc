// OLMo: Hugging Face's OlmoForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& olmo_family() {
  static const Family family = llama_like(
      "olmo", {"OlmoForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.attention.clip = c.number_or("clip_qkv", 0);
        s.normalization = Normalization::layer_plain;
        s.norm_epsilon = 1e-5F;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "olmo", "OlmoForCausalLM");
        c["attention_bias"] = s.attention.bias;
        c["clip_qkv"] = number_or_null(s.attention.clip);
        return c;
      });
  return family;
}

}  // namespace qkv

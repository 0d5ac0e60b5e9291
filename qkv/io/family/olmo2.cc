// OLMo 2: Hugging Face's Olmo2ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& olmo2_family() {
  static const Family family = llama_like(
      "olmo2", {"Olmo2ForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        s.norm_placement = NormPlacement::branch;
        s.attention.query_key_norm = QueryKeyNorm::whole;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "olmo2", "Olmo2ForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.attention_norm = nullptr,
                                          .feed_forward_norm = nullptr,
                                          .attention_branch_norm = "post_attention_layernorm",
                                          .feed_forward_branch_norm = "post_feedforward_layernorm"});
      });
  return family;
}

}  // namespace qkv

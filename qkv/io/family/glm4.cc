// GLM-4-0414: Hugging Face's Glm4ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& glm4_family() {
  static const Family family = llama_like(
      "glm4", {"Glm4ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = glm_family().read_config(c);
        s.norm_placement = NormPlacement::sandwich;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = glm_family().write_config(s);
        c["model_type"] = "glm4";
        c["architectures"] = {"Glm4ForCausalLM"};
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.attention_branch_norm = "post_self_attn_layernorm",
                                          .feed_forward_branch_norm = "post_mlp_layernorm",
                                          .up = {"gate_up_proj"}});
      });
  return family;
}

}  // namespace qkv

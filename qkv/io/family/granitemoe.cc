// Granite's mixture of experts: Hugging Face's GraniteMoeForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& granitemoe_family() {
  static const Family family = llama_like(
      "granitemoe", {"GraniteMoeForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = granite_family().read_config(c);
        read_local_experts(c, s);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = granite_family().write_config(s);
        c["model_type"] = "granitemoe";
        c["architectures"] = {"GraniteMoeForCausalLM"};
        c.erase("mlp_bias");
        c["intermediate_size"] = s.experts.hidden;
        write_local_experts(s, c);
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.mixture = "block_sparse_moe",
                                          .router = "router.layer",
                                          .expert = {"input_linear.weight", "output_linear.weight"},
                                          .stacked_experts = true});
      });
  return family;
}

}  // namespace qkv

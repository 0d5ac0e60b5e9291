// Granite's mixture of experts: Hugging Face's GraniteMoeForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& granitemoe_family() {
  static const Family family = llama_like(
      "granitemoe", {"GraniteMoeForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = granite_family().read_config(c);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_local_experts", 8, 1, kMost);
        x.chosen = c.integer_or("num_experts_per_tok", 2, 1, kMost);
        x.hidden = s.hidden;
        x.balance = c.number_or("router_aux_loss_coef", 0.001F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = granite_family().write_config(s);
        c["model_type"] = "granitemoe";
        c["architectures"] = {"GraniteMoeForCausalLM"};
        c.erase("mlp_bias");
        c["intermediate_size"] = s.experts.hidden;
        c["num_local_experts"] = s.experts.count;
        c["num_experts_per_tok"] = s.experts.chosen;
        c["router_aux_loss_coef"] = decimal(s.experts.balance);
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.mixture = "block_sparse_moe",
                                          .router = "router.layer",
                                          .expert = {"input_linear", "output_linear"},
                                          .stacked_experts = true});
      });
  return family;
}

}  // namespace qkv

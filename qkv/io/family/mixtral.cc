// Mixtral: Hugging Face's MixtralForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& mixtral_family() {
  static const Family family = llama_like(
      "mixtral", {"MixtralForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        read_window(c, s);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 8);
        const auto scaling = rotary_scaling_of(c);
        if (!c.find("rope_theta") && !(scaling && scaling->find("rope_theta"))) s.attention.rotary.base = 1e6;
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        ExpertsSpec& x = s.experts;
        x.count = c.integer_or("num_local_experts", 8, 1, kMost);
        x.chosen = c.integer_or("num_experts_per_tok", 2, 1, kMost);
        x.hidden = s.hidden;
        x.balance = c.number_or("router_aux_loss_coef", 0.001F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "mixtral", "MixtralForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = window_json(s);
        c["num_local_experts"] = s.experts.count;
        c["num_experts_per_tok"] = s.experts.chosen;
        c["router_aux_loss_coef"] = decimal(s.experts.balance);
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.mixture = "block_sparse_moe", .expert = {"w1", "w3", "w2"}});
      });
  return family;
}

}  // namespace qkv

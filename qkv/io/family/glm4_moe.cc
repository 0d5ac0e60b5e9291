// GLM-4.5: Hugging Face's Glm4MoeForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& glm4_moe_family() {
  static const Family family = [] {
    Family f = llama_like(
        "glm4_moe", {"Glm4MoeForCausalLM", ""},
        [](const JsonField& c) {
          ModelSpec s = read_llama_like(c);
          AttentionSpec& a = s.attention;
          a.kv_heads = read_kv_heads(c, a.heads, 8);
          a.rotary.width = read_rotated(c, "partial_rotary_factor", 0.5, a.d_qk);
          a.out_bias = false;
          if (c.boolean_or("use_qk_norm", false)) a.query_key_norm = QueryKeyNorm::heads;
          s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
          ExpertsSpec& x = s.experts;
          x.count = c.integer_or("n_routed_experts", 128, 1, kMost);
          x.chosen = c.integer_or("num_experts_per_tok", 8, 1, kMost);
          x.hidden = c.integer_or("moe_intermediate_size", 1408, 1, int64_t{1} << 24);
          x.first = c.integer_or("first_k_dense_replace", 1, 0, 1 << 20);
          x.score = RouterScore::sigmoid;
          x.choice_bias = true;
          x.choice_rate = 0;  // fixed in training
          x.groups = c.integer_or("n_group", 1, 1, kMost);
          x.chosen_groups = c.integer_or("topk_group", 1, 1, kMost);
          x.renormalized = c.boolean_or("norm_topk_prob", true);
          x.scale = c.number_or("routed_scaling_factor", 1);
          x.shared_hidden = c.integer_or("n_shared_experts", 1, 0, 1 << 16) * x.hidden;
          x.balance = 0;
          read_mtp(c, s);
          return s;
        },
        [](const ModelSpec& s) {
          const ExpertsSpec& x = s.experts;
          OrderedJson c = write_llama_like(s, "glm4_moe", "Glm4MoeForCausalLM");
          c["head_dim"] = s.attention.d_qk;
          c["partial_rotary_factor"] = rotated_part(s.attention);
          c["attention_bias"] = s.attention.bias;
          c["use_qk_norm"] = s.attention.query_key_norm == QueryKeyNorm::heads;
          c["n_routed_experts"] = x.count;
          c["num_experts_per_tok"] = x.chosen;
          c["moe_intermediate_size"] = x.hidden;
          c["first_k_dense_replace"] = x.first;
          c["n_group"] = x.groups;
          c["topk_group"] = x.chosen_groups;
          c["norm_topk_prob"] = x.renormalized;
          c["routed_scaling_factor"] = decimal(x.scale);
          c["n_shared_experts"] = x.hidden > 0 ? x.shared_hidden / x.hidden : 0;
          write_mtp(s, c);
          return c;
        },
        [](const ModelSpec& s) { return weights_named_as_llama(s, {.shared = "shared_experts"}); });
    f.ignores = is_extra_or_predicts_further;
    f.copies = mtp_copies;
    return f;
  }();
  return family;
}

}  // namespace qkv

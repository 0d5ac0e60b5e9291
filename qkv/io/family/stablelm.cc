// StableLM: Hugging Face's StableLmForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& stablelm_family() {
  static const Family family = llama_like(
      "stablelm", {"StableLmForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        if (c.boolean_or("qk_layernorm", false)) s.attention.query_key_norm = QueryKeyNorm::layer_heads;
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 32);
        s.normalization = Normalization::layer;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.attention.bias = c.boolean_or("use_qkv_bias", false);
        s.attention.out_bias = false;
        if (c.boolean_or("use_parallel_residual", false)) s.branches = Branches::one_norm;
        s.attention.rotary.width = read_rotated(c, "partial_rotary_factor", 0.25, s.attention.d_qk);
        s.residual_dropout = c.number_or("hidden_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "stablelm", "StableLmForCausalLM");
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["use_qkv_bias"] = s.attention.bias;
        c["use_parallel_residual"] = s.branches == Branches::one_norm;
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["hidden_dropout"] = decimal(s.residual_dropout);
        c["qk_layernorm"] = s.attention.query_key_norm == QueryKeyNorm::layer_heads;
        return c;
      },
      [](const ModelSpec& s) {
        LlamaNames names = {.query_key_norms = {"q_layernorm", "k_layernorm"}};
        if (s.branches == Branches::one_norm) names.feed_forward_norm = nullptr;
        return weights_named_as_llama(s, names);
      });
  return family;
}

}  // namespace qkv

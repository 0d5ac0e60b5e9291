// GLM-4 of 2024: Hugging Face's GlmForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& glm_family() {
  static const Family family = llama_like(
      "glm", {"GlmForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 2);
        a.d_qk = a.d_vo = c.integer_or("head_dim", 128, 1, kMost);
        a.rotary.width = read_rotated(c, "partial_rotary_factor", 0.5, a.d_qk);
        a.rotary.layout = RotaryLayout::interleaved;
        a.bias = c.boolean_or("attention_bias", true);
        a.out_bias = false;
        s.norm_epsilon = c.number_or("rms_norm_eps", 1.5625e-7F);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "glm", "GlmForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["attention_bias"] = s.attention.bias;
        return c;
      },
      [](const ModelSpec& s) { return weights_named_as_llama(s, {.up = {"gate_up_proj"}}); });
  return family;
}

}  // namespace qkv

// ERNIE 4.5: Hugging Face's Ernie4_5ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& ernie4_5_family() {
  static const Family family = llama_like(
      "ernie4_5", {"Ernie4_5ForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 2);
        read_head_width(c, 128, s);
        a.rotary.layout = RotaryLayout::interleaved;
        default_rotary_base(c, 500000, a.rotary);
        a.bias = a.out_bias = s.feed_forward_bias = c.boolean_or("use_bias", false);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        s.tied = c.boolean_or("tie_word_embeddings", true);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "ernie4_5", "Ernie4_5ForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["use_bias"] = s.attention.bias;
        return c;
      });
  return family;
}

}  // namespace qkv

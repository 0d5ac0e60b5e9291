// Qwen3: Hugging Face's Qwen3ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& qwen3_family() {
  static const Family family = llama_like(
      "qwen3", {"Qwen3ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 32);
        read_head_width(c, 128, s);
        a.query_key_norm = QueryKeyNorm::heads;
        read_layer_windows(c, s);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "qwen3", "Qwen3ForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        write_layer_windows(s, c);
        return c;
      });
  return family;
}

}  // namespace qkv

// Qwen2: Hugging Face's Qwen2ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& qwen2_family() {
  static const Family family = llama_like(
      "qwen2", {"Qwen2ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        read_layer_windows(c, s);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 32);
        s.attention.bias = true;
        s.attention.out_bias = false;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "qwen2", "Qwen2ForCausalLM");
        write_layer_windows(s, c);
        return c;
      });
  return family;
}

}  // namespace qkv

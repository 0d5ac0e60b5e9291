// Mistral: Hugging Face's MistralForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& mistral_family() {
  static const Family family = llama_like(
      "mistral", {"MistralForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        read_window(c, s, 4096);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 8);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "mistral", "MistralForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = window_json(s);
        return c;
      });
  return family;
}

}  // namespace qkv

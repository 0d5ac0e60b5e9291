// Ministral: Hugging Face's MinistralForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& ministral_family() {
  static const Family family = llama_like(
      "ministral", {"MinistralForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 8);
        read_window(c, s, 4096);
        const BlockSpec windowed = s;
        s.attention.patterns.clear();
        give_block(s, read_windowed(c, s.layers, [](int64_t) { return true; }), "", windowed);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "ministral", "MinistralForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = number_or_null(first_window(s));
        c["layer_types"] = layer_types(s);
        return c;
      });
  return family;
}

}  // namespace qkv

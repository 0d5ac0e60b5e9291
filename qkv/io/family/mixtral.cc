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
        default_rotary_base(c, 1e6, s.attention.rotary);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        read_local_experts(c, s);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "mixtral", "MixtralForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = window_json(s);
        write_local_experts(s, c);
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.mixture = "block_sparse_moe", .expert = {"w1", "w3", "w2"}});
      });
  return family;
}

}  // namespace qkv

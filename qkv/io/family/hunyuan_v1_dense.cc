// Hunyuan: Hugging Face's HunYuanDenseV1ForCausalLM.
#include <cmath>

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& hunyuan_v1_dense_family() {
  static const Family family = llama_like(
      "hunyuan_v1_dense", {"HunYuanDenseV1ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        a.query_key_norm = QueryKeyNorm::heads_rotated;
        // Its dynamic scaling with an alpha is another base, whatever the length.
        const auto scaling = rotary_scaling_of(c);
        const double alpha = scaling ? scaling->number_or("alpha", 0) : 0;
        if (alpha > 0 && a.rotary.scaling == RotaryScaling::dynamic) {
          const double d = static_cast<double>(a.d_qk), base = a.rotary.base * std::pow(alpha, d / (d - 2));
          a.rotary = {.width = a.d_qk, .base = static_cast<float>(base)};  // as numbers are read
        }
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.query_key_norms = {"query_layernorm", "key_layernorm"}});
      });
  return family;
}

}  // namespace qkv

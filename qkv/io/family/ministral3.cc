// Ministral 3: Hugging Face's Ministral3ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& ministral3_family() {
  static const Family family = llama_like(
      "ministral3", {"Ministral3ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 8);
        read_head_width(c, 128, s);
        a.bias = a.out_bias = false;
        s.context = c.integer_or("max_position_embeddings", 262144, 1, kMost);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        if (says_no_scaling(c)) {
          RotarySpec& r = a.rotary;
          default_rotary_base(c, 1e6, r);
          r.scaling = RotaryScaling::yarn;
          r.factor = 16;
          r.original_context = a.query_growth_every = 16384;
          r.low = 1;
          r.high = 32;
          a.query_growth = 0.1F;
        }
        read_window(c, s);
        const auto rotary = rotary_scaling_of(c);
        if (const float growth = rotary ? rotary->number_or("llama_4_scaling_beta", 0) : 0; growth != 0) {
          a.query_growth = growth;
          a.query_growth_every = (*rotary)["original_max_position_embeddings"].integer(1, kMost);
        }
        return s;
      },
      [](const ModelSpec& s) {
        const AttentionSpec& a = s.attention;
        OrderedJson c = write_llama_like(s, "ministral3", "Ministral3ForCausalLM");
        c["head_dim"] = a.d_qk;
        c["sliding_window"] = window_json(s);
        c.erase("rope_theta");
        c.erase("rope_scaling");
        OrderedJson rotary = rotary_parameters(a.rotary);
        if (a.query_growth != 0) {
          rotary["llama_4_scaling_beta"] = decimal(a.query_growth);
          rotary["original_max_position_embeddings"] = a.query_growth_every;
        }
        c["rope_parameters"] = std::move(rotary);
        return c;
      });
  return family;
}

}  // namespace qkv

// Gemma 2: Hugging Face's Gemma2ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& gemma2_family() {
  static const Family family = llama_like(
      "gemma2", {"Gemma2ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = gemma_family().read_config(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 4);
        s.norm_placement = NormPlacement::sandwich;
        read_query_scalar(c, a);
        // null means none; an absent field means the published value.
        const auto otherwise = [&](const char* key, float value) {
          return c.object().contains(key) ? 0 : value;
        };
        a.cap = c.number_or("attn_logit_softcapping", otherwise("attn_logit_softcapping", 50));
        s.logit_cap = c.number_or("final_logit_softcapping", otherwise("final_logit_softcapping", 30));
        check(!c.boolean_or("use_bidirectional_attention", false),
              "{}: use_bidirectional_attention: only false is supported", c.place());
        BlockSpec windowed = s;
        windowed.attention.patterns = {{.window = c.integer_or("sliding_window", 4096, 1, kMost)}};
        give_block(s, read_windowed(c, s.layers, [](int64_t l) { return l % 2 == 0; }), "", windowed);
        return s;
      },
      [](const ModelSpec& s) {
        const AttentionSpec& a = s.attention;
        OrderedJson c = gemma_family().write_config(s);
        c["model_type"] = "gemma2";
        c["architectures"] = {"Gemma2ForCausalLM"};
        c["query_pre_attn_scalar"] = query_scalar(a);
        c["attn_logit_softcapping"] = number_or_null(a.cap);
        c["final_logit_softcapping"] = number_or_null(s.logit_cap);
        if (const int64_t w = first_window(s); w > 0) c["sliding_window"] = w;
        c["layer_types"] = layer_types(s);
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.feed_forward_norm = "pre_feedforward_layernorm",
                                          .attention_branch_norm = "post_attention_layernorm",
                                          .feed_forward_branch_norm = "post_feedforward_layernorm"});
      });
  return family;
}

}  // namespace qkv

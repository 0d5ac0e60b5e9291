// Gemma 3, its language model: Hugging Face's Gemma3ForCausalLM and Gemma3TextForSequenceClassification.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& gemma3_text_family() {
  static const Family family = [] {
    Family f = llama_like(
        "gemma3_text", {"Gemma3ForCausalLM"},
        [](const JsonField& c) {
          ModelSpec s = gemma_family().read_config(c);
          AttentionSpec& a = s.attention;
          a.kv_heads = read_kv_heads(c, a.heads, 4);
          read_head_width(c, 256, s);
          s.context = c.integer_or("max_position_embeddings", 131072, 1, kMost);
          s.norm_placement = NormPlacement::sandwich;
          a.query_key_norm = QueryKeyNorm::heads_plus_one;
          read_query_scalar(c, a);
          a.cap = c.number_or("attn_logit_softcapping", 0);
          s.logit_cap = c.number_or("final_logit_softcapping", 0);
          check(!c.boolean_or("use_bidirectional_attention", false),
                "{}: use_bidirectional_attention: only false is supported", c.place());
          a.rotary = {.width = a.d_qk, .base = c.number_or("rope_theta", 1e6)};
          read_rotary_scaling(c, s.context, a.rotary, kFull);
          BlockSpec local = s;
          const auto of_type = plain_rotary_of(c, kWindowed);
          const double base = c.number_or("rope_local_base_freq", 10000);
          local.attention.rotary = {.width = a.d_qk,
                                    .base = c.find("rope_local_base_freq") || !of_type
                                                ? base
                                                : of_type->number_or("rope_theta", base)};
          local.attention.patterns = {{.window = c.integer_or("sliding_window", 4096, 1, kMost)}};
          const auto every = c.integer_or("sliding_window_pattern", 6, 1, kMost);
          give_block(s, read_windowed(c, s.layers, [&](int64_t l) { return (l + 1) % every != 0; }), "local",
                     local);
          return s;
        },
        [](const ModelSpec& s) {
          OrderedJson c = gemma_family().write_config(s);
          c["model_type"] = "gemma3_text";
          c["architectures"] = {"Gemma3ForCausalLM"};
          c["query_pre_attn_scalar"] = query_scalar(s.attention);
          c["attn_logit_softcapping"] = number_or_null(s.attention.cap);
          c["final_logit_softcapping"] = number_or_null(s.logit_cap);
          if (const int64_t w = first_window(s); w > 0) c["sliding_window"] = w;
          c["layer_types"] = layer_types(s);
          for (int64_t l = s.layers; l-- > 0;)
            if (window_of(s, l) > 0) c["rope_local_base_freq"] = s.block(l).attention.rotary.base;
          return c;
        },
        [](const ModelSpec& s) { return gemma2_family().weights(s); });
    f.rotates_by_type = true;
    f.classes_named = "Gemma3Text";
    return f;
  }();
  return family;
}

}  // namespace qkv

// Command R7B and Command A: Hugging Face's Cohere2ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& cohere2_family() {
  static const Family family = llama_like(
      "cohere2", {"Cohere2ForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = cohere_family().read_config(c);
        s.attention.query_key_norm = QueryKeyNorm::none;
        s.context = c.integer_or("max_position_embeddings", 8192, 1, kMost);
        // Layers without a window know no positions.
        const BlockSpec full = without_positions(s);
        const auto every = c.integer_or("sliding_window_pattern", 4, 1, kMost);
        s.attention.patterns = {{.window = c.integer_or("sliding_window", 4096, 1, kMost)}};
        std::vector<bool> is_full =
            read_windowed(c, s.layers, [&](int64_t l) { return (l + 1) % every != 0; });
        is_full.flip();
        give_block(s, is_full, "global", full);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = cohere_family().write_config(s);
        c["model_type"] = "cohere2";
        c["architectures"] = {"Cohere2ForCausalLM"};
        c["head_dim"] = s.attention.d_qk;
        c.erase("use_qk_norm");
        if (const int64_t w = first_window(s); w > 0) c["sliding_window"] = w;
        c["layer_types"] = layer_types(s);
        return c;
      },
      [](const ModelSpec& s) { return cohere_family().weights(s); });
  return family;
}

}  // namespace qkv

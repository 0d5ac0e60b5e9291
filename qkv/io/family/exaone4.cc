// EXAONE 4: Hugging Face's Exaone4ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

namespace {

// A pattern of letters for layers in turn, L for a window, or a number of layers of which the last has none.
bool is_windowed(const JsonField& c, int64_t layer, int64_t layers) {
  const auto pattern = c.find("sliding_window_pattern");
  if (!pattern) return (layer + 1) % 4 != 0;
  if (!pattern->json().is_string()) return (layer + 1) % pattern->integer(1, kMost) != 0;
  const std::string& letters = pattern->string();
  check(!letters.empty(), "{}: a pattern of layers is expected", pattern->place());
  return layer + 1 < layers && letters[static_cast<size_t>(layer) % letters.size()] == 'L';
}

}  // namespace

const Family& exaone4_family() {
  static const Family family = llama_like(
      "exaone4", {"Exaone4ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 32);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        s.norm_placement = NormPlacement::branch;
        s.attention.query_key_norm = QueryKeyNorm::heads;
        if (c.object().contains("sliding_window") && !c.find("sliding_window")) return s;
        const auto window = c.integer_or("sliding_window", 4096, 1, kMost);
        // Layers without a window know no positions.
        const BlockSpec full = without_positions(s);
        s.attention.patterns = {{.window = window}};
        std::vector<bool> is_full =
            read_windowed(c, s.layers, [&](int64_t l) { return is_windowed(c, l, s.layers); });
        is_full.flip();
        give_block(s, is_full, "global", full);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "exaone4", "Exaone4ForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["sliding_window"] = number_or_null(first_window(s));
        c["layer_types"] = layer_types(s);
        return c;
      },
      [](const ModelSpec& s) { return olmo2_family().weights(s); });
  return family;
}

}  // namespace qkv

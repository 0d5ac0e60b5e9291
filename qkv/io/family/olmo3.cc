// OLMo 3: Hugging Face's Olmo3ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& olmo3_family() {
  static const Family family = [] {
    Family f = llama_like(
        "olmo3", {"Olmo3ForCausalLM", ""},
        [](const JsonField& c) {
          ModelSpec s = olmo2_family().read_config(c);
          s.attention.rotary.scaling = RotaryScaling::none;
          read_rotary_scaling(c, s.context, s.attention.rotary, kFull);
          // Layers with a window rotate without scaling.
          BlockSpec windowed = s;
          windowed.attention.rotary = {.width = s.attention.d_qk, .base = s.attention.rotary.base};
          if (const auto of_type = plain_rotary_of(c, kWindowed))
            windowed.attention.rotary.base = of_type->number_or("rope_theta", windowed.attention.rotary.base);
          windowed.attention.patterns = {{.window = c.integer_or("sliding_window", 4096, 1, kMost)}};
          give_block(s, read_windowed(c, s.layers, [](int64_t l) { return (l + 1) % 4 != 0; }), "local",
                     windowed);
          return s;
        },
        [](const ModelSpec& s) {
          OrderedJson c = olmo2_family().write_config(s);
          c["model_type"] = "olmo3";
          c["architectures"] = {"Olmo3ForCausalLM"};
          if (const int64_t w = first_window(s); w > 0) c["sliding_window"] = w;
          c["layer_types"] = layer_types(s);
          return c;
        },
        [](const ModelSpec& s) { return olmo2_family().weights(s); });
    f.rotates_by_type = true;
    return f;
  }();
  return family;
}

}  // namespace qkv

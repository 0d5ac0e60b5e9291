// SmolLM3: Hugging Face's SmolLM3ForCausalLM.

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& smollm3_family() {
  static const Family family = llama_like(
      "smollm3", {"SmolLM3ForCausalLM"},
      [](const JsonField& c) {
        check(!c.boolean_or("use_sliding_window", false), "{}: use_sliding_window: only false is supported",
              c.place());
        ModelSpec s = read_llama_like(c);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 4);
        default_rotary_base(c, 2000000, s.attention.rotary);
        s.tied = c.boolean_or("tie_word_embeddings", true);
        const std::vector<bool> windowed = read_windowed(c, s.layers, [](int64_t) { return false; });
        check(std::ranges::find(windowed, true) == windowed.end(), "{}: layer_types: only {} is supported",
              c.place(), kFull);
        const BlockSpec plain = without_positions(s);
        give_block(s, read_unrotated(c, s.layers), "global", plain);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "smollm3", "SmolLM3ForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        c["mlp_bias"] = s.feed_forward_bias;
        c["use_sliding_window"] = false;
        c["no_rope_layers"] = OrderedJson::array();
        for (int64_t l = 0; l < s.layers; ++l)
          c["no_rope_layers"].push_back(s.block(l).positions == Positions::rotary ? 1 : 0);
        return c;
      });
  return family;
}

}  // namespace qkv

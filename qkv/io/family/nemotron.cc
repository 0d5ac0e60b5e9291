// Nemotron: Hugging Face's NemotronForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& nemotron_family() {
  static const Family family = llama_like(
      "nemotron", {"NemotronForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        s.context = c.integer_or("max_position_embeddings", 4096, 1, kMost);
        s.activation = read_activation(c, "hidden_act", "relu2");
        s.gated = false;
        s.normalization = Normalization::layer_plus_one;
        s.norm_epsilon = c.number_or("norm_eps", 1e-5F);
        s.init_std = c.number_or("initializer_range", 0.0134F);
        a.rotary.width = read_rotated(c, "partial_rotary_factor", 0.5, a.d_qk);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "nemotron", "NemotronForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["norm_eps"] = decimal(s.norm_epsilon);
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["attention_bias"] = s.attention.bias;
        c["mlp_bias"] = s.feed_forward_bias;
        return c;
      },
      [](const ModelSpec& s) { return weights_named_as_llama(s, {.up = {"up_proj"}}); });
  return family;
}

}  // namespace qkv

// Apertus: Hugging Face's ApertusForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& apertus_family() {
  static const Family family = [] {
    Family f = llama_like(
        "apertus", {"ApertusForCausalLM"},
        [](const JsonField& c) {
          const bool xielu = c.string_or("hidden_act", "xielu") == "xielu";
          ModelSpec s = read_llama_like(c, xielu ? Activation::xielu : read_activation(c, "hidden_act", ""));
          s.context = c.integer_or("max_position_embeddings", 65536, 1, kMost);
          s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
          RotarySpec& r = s.attention.rotary;
          default_rotary_base(c, 12e6, r);
          if (says_no_scaling(c)) {
            r.scaling = RotaryScaling::llama3;
            r.factor = 8;
            r.original_context = 8192;
          }
          s.feed_forward_bias = false;
          s.gated = false;
          s.attention.query_key_norm = QueryKeyNorm::heads;
          return s;
        },
        [](const ModelSpec& s) {
          OrderedJson c = write_llama_like(s, "apertus", "ApertusForCausalLM");
          c["head_dim"] = s.attention.d_qk;
          c["attention_bias"] = s.attention.bias;
          if (s.attention.rotary.scaling == RotaryScaling::none) c["rope_scaling"] = nullptr;
          return c;
        },
        [](const ModelSpec& s) {
          return weights_named_as_llama(s, {.attention_norm = "attention_layernorm",
                                            .feed_forward_norm = "feedforward_layernorm",
                                            .up = {"up_proj"}});
        });
    // xIELU's constants.
    f.ignores = [](const ModelSpec& s, const std::string& name) {
      return is_extra_in_llama(s, name) || name.ends_with(".act_fn.beta") || name.ends_with(".act_fn.eps");
    };
    return f;
  }();
  return family;
}

}  // namespace qkv

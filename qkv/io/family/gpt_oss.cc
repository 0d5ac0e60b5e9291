// gpt-oss: Hugging Face's GptOssForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

namespace {

constexpr float kLimit = 7;  // gate_limit

}  // namespace

const Family& gpt_oss_family() {
  static const Family family = llama_like(
      "gpt_oss", {"GptOssForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        AttentionSpec& a = s.attention;
        a.kv_heads = read_kv_heads(c, a.heads, 8);
        read_head_width(c, 64, s);
        a.bias = a.out_bias = c.boolean_or("attention_bias", true);
        a.sinks = true;
        s.context = c.integer_or("max_position_embeddings", 131072, 1, kMost);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        default_rotary_base(c, 150000, a.rotary);
        if (says_no_scaling(c)) {
          RotarySpec& r = a.rotary;
          r.scaling = RotaryScaling::yarn;
          r.factor = 32;
          r.original_context = 4096;
          r.low = 1;
          r.high = 32;
          r.magnitude = yarn_magnitude(r.factor, 1);
          r.truncated = false;
        }
        s.activation = Activation::gelu_quick;  // whatever hidden_act says
        s.gate_limit = kLimit;                  // whatever swiglu_limit says
        s.feed_forward_bias = false;
        read_local_experts(c, s, {128, 4, 0.9F});
        s.experts.router_bias = s.experts.bias = true;
        BlockSpec windowed = s;
        windowed.attention.patterns = {{.window = c.integer_or("sliding_window", 128, 1, kMost)}};
        give_block(s, read_windowed(c, s.layers, [](int64_t l) { return l % 2 == 0; }), "", windowed);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "gpt_oss", "GptOssForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["hidden_act"] = "silu";
        c["attention_bias"] = s.attention.bias;
        c["swiglu_limit"] = decimal(s.gate_limit);
        if (s.attention.rotary.scaling == RotaryScaling::none) c["rope_scaling"] = nullptr;
        c["intermediate_size"] = s.experts.hidden;
        write_local_experts(s, c);
        if (const int64_t w = first_window(s); w > 0) c["sliding_window"] = w;
        c["layer_types"] = layer_types(s);
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.router = "router",
                                          .expert = {"experts.gate_up_proj", "experts.down_proj"},
                                          .stacked_experts = true,
                                          .transposed_experts = true,
                                          .interleaved_experts = true});
      });
  return family;
}

}  // namespace qkv

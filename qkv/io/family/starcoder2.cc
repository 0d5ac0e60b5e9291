// StarCoder2: Hugging Face's Starcoder2ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& starcoder2_family() {
  static const Family family = llama_like(
      "starcoder2", {"Starcoder2ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        read_window(c, s);
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 2);
        s.activation = read_activation(c, "hidden_act", "gelu_pytorch_tanh");
        s.gated = false;
        s.normalization = Normalization::layer;
        s.norm_epsilon = c.number_or("norm_epsilon", 1e-5F);
        s.attention.bias = s.attention.out_bias = s.feed_forward_bias = c.boolean_or("use_bias", true);
        s.tied = c.boolean_or("tie_word_embeddings", true);
        s.embedding_dropout = c.number_or("embedding_dropout", 0);
        s.residual_dropout = c.number_or("residual_dropout", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "starcoder2", "Starcoder2ForCausalLM");
        c["norm_epsilon"] = decimal(s.norm_epsilon);
        c["sliding_window"] = window_json(s);
        c["use_bias"] = s.attention.bias;
        c["embedding_dropout"] = decimal(s.embedding_dropout);
        c["residual_dropout"] = decimal(s.residual_dropout);
        return c;
      },
      [](const ModelSpec& s) { return weights_named_as_llama(s, {.up = {"c_fc"}, .down = "c_proj"}); });
  return family;
}

}  // namespace qkv

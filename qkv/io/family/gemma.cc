// Gemma: Hugging Face's GemmaForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& gemma_family() {
  static const Family family = llama_like(
      "gemma", {"GemmaForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        // Old files have hidden_act gelu but mean the tanh form.
        s.activation =
            c.find("hidden_activation") ? read_activation(c, "hidden_activation", "") : Activation::gelu_tanh;
        s.attention.kv_heads = read_kv_heads(c, s.attention.heads, 16);
        s.normalization = Normalization::rms_plus_one;
        s.embedding_scaled = true;
        s.tied = c.boolean_or("tie_word_embeddings", true);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "gemma", "GemmaForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        c["hidden_act"] = c["hidden_activation"] =
            s.activation == Activation::gelu_tanh ? "gelu_pytorch_tanh" : config_name_of(s.activation);
        return c;
      });
  return family;
}

}  // namespace qkv

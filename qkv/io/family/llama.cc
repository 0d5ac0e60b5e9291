// Llama: Hugging Face's LlamaForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& llama_family() {
  static const Family family =
      llama_like("llama", {"LlamaForCausalLM"}, read_llama_like, [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "llama", "LlamaForCausalLM");
        c["head_dim"] = s.attention.d_qk;
        c["attention_bias"] = s.attention.bias;
        c["mlp_bias"] = s.feed_forward_bias;
        return c;
      });
  return family;
}

}  // namespace qkv

// Command R: Hugging Face's CohereForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& cohere_family() {
  static const Family family = llama_like(
      "cohere", {"CohereForCausalLM", ""},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        if (c.boolean_or("use_qk_norm", false)) s.attention.query_key_norm = QueryKeyNorm::layer_heads;
        s.normalization = Normalization::layer_scale;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.branches = Branches::one_norm;
        s.attention.rotary.layout = RotaryLayout::interleaved;
        s.logit_multiplier = c.number_or("logit_scale", 0.0625F);
        s.tied = c.boolean_or("tie_word_embeddings", true);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "cohere", "CohereForCausalLM");
        c["attention_bias"] = s.attention.bias;
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["logit_scale"] = decimal(s.logit_multiplier);
        c["use_qk_norm"] = s.attention.query_key_norm == QueryKeyNorm::layer_heads;
        return c;
      },
      [](const ModelSpec& s) { return weights_named_as_llama(s, {.feed_forward_norm = nullptr}); });
  return family;
}

}  // namespace qkv

// Phi-1 to Phi-2: Hugging Face's PhiForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {

const Family& phi_family() {
  static const Family family = llama_like(
      "phi", {"PhiForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        if (c.boolean_or("qk_layernorm", false)) s.attention.query_key_norm = QueryKeyNorm::layer;
        s.activation = read_activation(c, "hidden_act", "gelu_new");
        s.gated = false;
        s.normalization = Normalization::layer;
        s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
        s.branches = Branches::one_norm;
        s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.unembedding_bias = true;
        s.attention.rotary.width = read_rotated(c, "partial_rotary_factor", 0.5, s.attention.d_qk);
        s.embedding_dropout = c.number_or("embd_pdrop", 0);
        s.residual_dropout = c.number_or("resid_pdrop", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "phi", "PhiForCausalLM");
        c["layer_norm_eps"] = decimal(s.norm_epsilon);
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        c["qk_layernorm"] = s.attention.query_key_norm == QueryKeyNorm::layer;
        return c;
      },
      [](const ModelSpec& s) {
        return weights_named_as_llama(s, {.query_key_norms = {"q_layernorm", "k_layernorm"},
                                          .out = "dense",
                                          .feed_forward_norm = nullptr,
                                          .up = {"fc1"},
                                          .down = "fc2",
                                          .last_norm = "model.final_layernorm"});
      });
  return family;
}

}  // namespace qkv

// Phi-3 and Phi-4: Hugging Face's Phi3ForCausalLM.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {

const Family& phi3_family() {
  constexpr int64_t kPhi3Context = 4096;  // default of its config
  static const Family family = llama_like(
      "phi3", {"Phi3ForCausalLM"},
      [](const JsonField& c) {
        ModelSpec s = read_llama_like(c);
        s.context = c.integer_or("max_position_embeddings", kPhi3Context, 1, kMost);
        // Its su and yarn are longrope, with a separate default of the original context.
        if (const auto scaling = rotary_scaling_of(c); scaling && scaling->find("short_factor"))
          read_longrope(c, *scaling, s.context, kPhi3Context, s.attention.rotary);
        read_window(c, s);
        s.norm_epsilon = c.number_or("rms_norm_eps", 1e-5F);
        s.attention.rotary.width = read_rotated(c, "partial_rotary_factor", 1, s.attention.d_qk);
        s.embedding_dropout = c.number_or("embd_pdrop", 0);
        s.residual_dropout = c.number_or("resid_pdrop", 0);
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_llama_like(s, "phi3", "Phi3ForCausalLM");
        if (s.attention.rotary.scaling != RotaryScaling::longrope)
          c["original_max_position_embeddings"] = s.context;
        c["partial_rotary_factor"] = rotated_part(s.attention);
        c["sliding_window"] = window_json(s);
        c["embd_pdrop"] = decimal(s.embedding_dropout);
        c["resid_pdrop"] = decimal(s.residual_dropout);
        return c;
      },
      [](const ModelSpec& s) { return weights_named_as_llama(s, {.fused = true}); });
  return family;
}

}  // namespace qkv

// Qwen3.5, its language model: Hugging Face's Qwen3_5ForCausalLM, layers of Gated DeltaNet and of gated
// attention.

#include "qkv/base/json_value.h"
#include "qkv/io/family/qwen3_next_parts.h"

namespace qkv {

const Family& qwen3_5_text_family() {
  static const Family family = qwen3_next_like(
      "qwen3_5_text", "Qwen3_5ForCausalLM",
      [](const JsonField& c) {
        ModelSpec s = read_qwen3_next_like(c, {16, 4, 256});
        std::vector<std::string> layers;
        for (const bool full : read_full_layers(c, s.layers))
          layers.push_back(full ? kDefaultKind : "linear");
        give_blocks(s, layers, {{"linear", with_mixer(s, read_gated_delta(c, {16, 32}))}});
        return s;
      },
      [](const ModelSpec& s) { return write_qwen3_next_like(s, "qwen3_5_text", "Qwen3_5ForCausalLM"); },
      [](const ModelSpec& s) {
        return weights_named_as_llama(
            s, {.mixer = [](WeightNames& n, const ModelSpec& /*spec*/, const BlockSpec& b,
                            const std::string& e, const std::string& file) {
              add_gated_delta(n, *b.mixer.get_if<GatedDeltaMixer>(), false, e, file + "linear_attn.");
            }});
      });
  return family;
}

}  // namespace qkv

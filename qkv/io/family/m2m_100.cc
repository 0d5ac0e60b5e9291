// M2M-100 and NLLB: Hugging Face's M2M100ForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bart_parts.h"

namespace qkv {

const Family& m2m100_family() {
  static const Family family = {
      "m2m_100",
      [](const JsonField& c) {
        ModelSpec s = read_bart_like(c);
        s.activation = read_activation(c, "activation_function", "relu");
        s.embedding_scaled = c.boolean_or("scale_embedding", true);
        s.first_position = read_first_position(c);
        s.norm_placement = NormPlacement::pre;
        s.positions = Positions::sinusoidal_closed;
        s.unembedding_bias = false;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_bart_like(s, "m2m_100", "M2M100ForConditionalGeneration");
        c["pad_token_id"] = rows_before_first(s) - 1;
        return c;
      },
      [](const ModelSpec& s) {
        return s.architecture == Architecture::encoder_decoder && s.positions == Positions::sinusoidal_closed;
      },
      [](const ModelSpec& s) {
        WeightNames n;
        n.tensor("embedding.token", "model.shared.weight");
        add_bart_blocks(s, n);
        n.untied(s, "lm_head.weight");
        return n.all;
      },
      "model.",
      [](const ModelSpec& s, const std::string& name) {
        return is_extra_in_bart(s, name) || name.ends_with(".embed_positions.weights");
      }};
  return family;
}

}  // namespace qkv

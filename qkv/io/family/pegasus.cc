// PEGASUS: Hugging Face's PegasusForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bart_parts.h"

namespace qkv {

const Family& pegasus_family() {
  static const Family family = {
      "pegasus",
      [](const JsonField& c) {
        ModelSpec s = read_bart_like(c);
        s.norm_placement = NormPlacement::pre;
        s.positions = Positions::sinusoidal_halves;
        return s;
      },
      [](const ModelSpec& s) { return write_bart_like(s, "pegasus", "PegasusForConditionalGeneration"); },
      [](const ModelSpec& s) { return is_bart_like(s) && s.positions == Positions::sinusoidal_halves; },
      weights_named_as_marian,
      "model.",
      is_extra_in_marian};
  return family;
}

}  // namespace qkv

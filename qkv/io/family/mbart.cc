// mBART: Hugging Face's MBartForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bart_parts.h"

namespace qkv {

const Family& mbart_family() {
  static const Family family = {
      "mbart",
      [](const JsonField& c) {
        ModelSpec s = read_bart_like(c);
        s.norm_placement = NormPlacement::pre;
        s.stacks_apart = true;
        s.embedding_norm = true;
        return s;
      },
      [](const ModelSpec& s) { return write_bart_like(s, "mbart", "MBartForConditionalGeneration"); },
      [](const ModelSpec& s) { return is_bart_like(s) && s.positions == Positions::learned; },
      weights_named_as_bart,
      "model.",
      is_extra_in_bart};
  return family;
}

}  // namespace qkv

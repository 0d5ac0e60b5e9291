// BART: Hugging Face's BartForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bart_parts.h"

namespace qkv {

const Family& bart_family() {
  static const Family family = {
      "bart",
      [](const JsonField& c) {
        ModelSpec s = read_bart_like(c);
        s.stacks_apart = true;
        s.embedding_norm = true;
        return s;
      },
      [](const ModelSpec& s) { return write_bart_like(s, "bart", "BartForConditionalGeneration"); },
      [](const ModelSpec& s) {
        return is_bart_like(s) && s.positions == Positions::learned && s.stacks_apart && s.embedding_norm;
      },
      weights_named_as_bart,
      "model.",
      is_extra_in_bart};
  return family;
}

}  // namespace qkv

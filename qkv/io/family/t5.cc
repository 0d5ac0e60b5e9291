// T5, v1.1 and Flan-T5 included: Hugging Face's T5ForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/t5_parts.h"

namespace qkv {

const Family& t5_family() {
  static const Family family = {"t5",
                                [](const JsonField& c) { return read_t5(c); },
                                write_t5,
                                expresses_t5,
                                [](const ModelSpec& s) { return weights_named_as_t5(s, "DenseReluDense"); },
                                "",
                                is_extra_in_t5};
  return family;
}

}  // namespace qkv

// UMT5: Hugging Face's UMT5ForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/t5_parts.h"

namespace qkv {

const Family& umt5_family() {
  static const Family family = [] {
    Family f = {"umt5",
                [](const JsonField& c) {
                  ModelSpec s = read_t5(c, "gated-gelu");
                  s.relative_by_layer = true;
                  return s;
                },
                [](const ModelSpec& s) {
                  OrderedJson c = write_t5(s);
                  c["model_type"] = "umt5";
                  c["architectures"] = {"UMT5ForConditionalGeneration"};
                  return c;
                },
                expresses_t5,
                [](const ModelSpec& s) { return weights_named_as_t5(s, "DenseReluDense"); },
                "",
                is_extra_in_t5};
    f.fills_with_ends = true;
    return f;
  }();
  return family;
}

}  // namespace qkv

// RoBERTa: Hugging Face's RobertaForMaskedLM and so on.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

std::vector<WeightName> roberta_weights(const ModelSpec& s) {
  WeightNames n = bert_stack(s, "roberta", rows_before_first(s));
  add_roberta_heads(n, s, "roberta");
  return n.all;
}

}  // namespace

const Family& roberta_family() {
  static const Family family = {
      "roberta",
      [](const JsonField& c) { return read_roberta_like(c, "Roberta"); },
      [](const ModelSpec& s) { return write_roberta_like(s, "roberta", "Roberta"); },
      [](const ModelSpec& s) { return s.family == "roberta" && is_bert(s); },
      roberta_weights,
      "roberta.",
      is_extra_in_bert};
  return family;
}

}  // namespace qkv

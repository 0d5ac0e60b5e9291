// BERT: Hugging Face's BertForMaskedLM, BertForPreTraining and so on.
#include <utility>

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

// True for BERT with vectors of distances instead of positions, for all distances within the context.
bool is_bert_of_distances(ModelSpec s) {
  const RelativeSpec r = std::exchange(s.attention.relative, {});
  const Positions positions = std::exchange(s.positions, Positions::learned);
  return is_bert(s) && positions == Positions::none && s.architecture == Architecture::encoder &&
         (r.kind == RelativeAttention::shaw || r.kind == RelativeAttention::shaw_both) &&
         r.distance == s.context - 1;
}

std::vector<WeightName> bert_weights(const ModelSpec& s) {
  std::vector<WeightName> all = weights_named_as_bert(s);
  for (WeightName& name : all)
    if (tells_next(s) && name.file.starts_with("classifier.")) {
      name.also = name.file;  // name in a BertForSequenceClassification with these two labels
      name.file = "cls.seq_relationship" + name.file.substr(std::string("classifier").size());
    }
  return all;
}

}  // namespace

const Family& bert_family() {
  static const Family family = {
      "bert",
      [](const JsonField& c) { return read_bert_like(c, "Bert", 0); },
      [](const ModelSpec& s) { return write_bert_like(s, "bert", "Bert", 0); },
      [](const ModelSpec& s) { return (is_bert(s) || is_bert_of_distances(s)) && s.segments > 0; },
      bert_weights,
      "bert.",
      is_extra_in_bert};
  return family;
}

}  // namespace qkv

// Longformer: Hugging Face's LongformerForMaskedLM, ...ForSequenceClassification, ...ForTokenClassification.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {
namespace {

ModelSpec read_longformer(const JsonField& c) {
  ModelSpec s = read_roberta_like(c, "Longformer");
  check(
      s.output == Output::tokens
          ? s.labels.empty()
          : (s.output == Output::sequence_classes && s.problem != Problem::multiple_choice) ||
                s.output == Output::token_classes,
      "{}: architectures: of Longformer only LongformerForMaskedLM, LongformerForSequenceClassification and "
      "LongformerForTokenClassification are supported",
      c.place());
  // A classifier's first token attends to all tokens.
  s.attention.patterns = read_two_sided_windows(c, s.layers, s.output == Output::sequence_classes ? 1 : 0);
  s.attention.global_projections = true;
  return s;
}

OrderedJson write_longformer(const ModelSpec& s) {
  OrderedJson c = write_roberta_like(s, "longformer", "Longformer");
  c["attention_window"] = two_sided_windows_json(s.attention.patterns, s.layers);
  return c;
}

std::vector<WeightName> longformer_weights(const ModelSpec& s) {
  WeightNames n;
  add_bert_embeddings(n, s, "longformer", rows_before_first(s));
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("longformer.encoder.layer.{}.", l), self = file + "attention.self.";
    add_bert_qkv(n, s, engine, self);
    add_global_projections(n, s.width, engine, self);
    add_bert_outputs(n, engine, file);
  }
  add_roberta_heads(n, s, "longformer");
  return n.all;
}

}  // namespace

const Family& longformer_family() {
  static const Family family = {
      "longformer",
      read_longformer,
      write_longformer,
      [](const ModelSpec& s) {
        return s.attention.global_projections && is_bert(s) && !s.attention.patterns.empty();
      },
      longformer_weights,
      "longformer.",
      [](const ModelSpec& s, const std::string& name) {
        return name.ends_with("embeddings.position_ids") || name == "lm_head.decoder.bias" ||
               (s.tied && name == "lm_head.decoder.weight") ||
               (!s.pooler && name.find("pooler.dense.") != std::string::npos);
      }};
  return family;
}

}  // namespace qkv

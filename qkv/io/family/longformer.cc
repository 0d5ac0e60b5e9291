// Longformer: Hugging Face's LongformerForMaskedLM, ...ForSequenceClassification, ...ForTokenClassification.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

// "attention_window": one number, or one for each layer; half of the tokens are on each side.
std::vector<Pattern> read_patterns(const JsonField& c, int64_t layers, int64_t global) {
  const JsonField field = c["attention_window"];
  std::vector<int64_t> windows = {512};
  if (field.json().is_array())
    windows = field.integers(2, kMost);
  else
    windows = {field.integer(2, kMost)};
  check(windows.size() == 1 || std::ssize(windows) == layers,
        "{}: expected one number, or one of each of {} layers", field.place(), layers);
  std::vector<Pattern> patterns;
  for (const int64_t w : windows) {
    check(w % 2 == 0, "{}: expected even numbers, got {}", field.place(), w);
    patterns.push_back({.window = w / 2 + 1, .global = global});
  }
  return shortest_run(std::move(patterns));
}

ModelSpec read_config(const JsonField& c) {
  ModelSpec s = read_roberta_like(c, "Longformer");
  check(
      s.output == Output::tokens ? s.labels.empty()
                                 : s.output == Output::sequence_classes || s.output == Output::token_classes,
      "{}: architectures: of Longformer only LongformerForMaskedLM, LongformerForSequenceClassification and "
      "LongformerForTokenClassification are supported",
      c.place());
  // A classifier's first token attends to all tokens.
  s.attention.patterns = read_patterns(c, s.layers, s.output == Output::sequence_classes ? 1 : 0);
  s.attention.global_projections = true;
  return s;
}

OrderedJson write_config(const ModelSpec& s) {
  OrderedJson c = write_roberta_like(s, "longformer", "Longformer");
  std::vector<int64_t> windows;
  const std::vector<Pattern>& patterns = s.attention.patterns;
  for (int64_t l = 0; l < s.layers; ++l)
    windows.push_back(2 * (patterns[static_cast<size_t>(l) % patterns.size()].window - 1));
  c["attention_window"] = windows;
  return c;
}

std::vector<WeightName> weights(const ModelSpec& s) {
  WeightNames n;
  add_bert_embeddings(n, s, "longformer", rows_before_first(s));
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("longformer.encoder.layer.{}.", l), self = file + "attention.self.";
    add_bert_qkv(n, s, engine, self);
    n.linear(engine + "attention.global.q", self + "query_global");
    n.parts(engine + "attention.global.kv", {self + "key_global", self + "value_global"}, {s.width, s.width});
    add_bert_outputs(n, engine, file);
  }
  if (s.output == Output::tokens) {
    n.masked_head(s, kRobertaHead);
  } else if (s.output == Output::sequence_classes) {
    add_classification_head(n);
  } else {
    n.linear("classifier", "classifier");
  }
  return n.all;
}

}  // namespace

const Family& longformer_family() {
  static const Family family = {
      "longformer",
      read_config,
      write_config,
      [](const ModelSpec& s) {
        return s.attention.global_projections && is_bert(s) && !s.attention.patterns.empty();
      },
      weights,
      "longformer.",
      [](const ModelSpec& s, const std::string& name) {
        return name.ends_with("embeddings.position_ids") || name == "lm_head.decoder.bias" ||
               (s.tied && name == "lm_head.decoder.weight") ||
               (!s.pooler && name.find("pooler.dense.") != std::string::npos);
      }};
  return family;
}

}  // namespace qkv

// Longformer: Hugging Face's LongformerForMaskedLM, ...ForSequenceClassification, ...ForTokenClassification.

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

// "attention_window": one number, or one of each layer; half of the tokens are on each side.
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
  // The shortest run that repeats.
  for (size_t n = 1; n < patterns.size(); ++n) {
    bool repeats = true;
    for (size_t i = n; i < patterns.size(); ++i) repeats &= patterns[i] == patterns[i - n];
    if (repeats) patterns.resize(n);
  }
  return patterns;
}

ModelSpec read_config(const JsonField& c) {
  ModelSpec s = read_roberta_like(c, "Longformer");
  check(
      s.output == Output::tokens ? s.labels.empty()
                                 : s.output == Output::sequence_classes || s.output == Output::token_classes,
      "{}: architectures: of Longformer only LongformerForMaskedLM, LongformerForSequenceClassification and "
      "LongformerForTokenClassification are supported",
      c.place());
  // A classifier's first token sees all.
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
  const std::string e = "longformer.embeddings.";
  n.tensor("embedding.token", e + "word_embeddings.weight");
  n.all.push_back(
      {"embedding.position", e + "position_embeddings.weight", false, 0, 0, rows_before_first(s)});
  if (s.segments > 0) n.tensor("embedding.segment", e + "token_type_embeddings.weight");
  n.norm("embedding.norm", e + "LayerNorm");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("longformer.encoder.layer.{}.", l), self = file + "attention.self.";
    n.parts(engine + "attention.qkv", {self + "query", self + "key", self + "value"},
            {s.width, s.width, s.width});
    n.linear(engine + "attention.global.q", self + "query_global");
    n.parts(engine + "attention.global.kv", {self + "key_global", self + "value_global"}, {s.width, s.width});
    n.linear(engine + "attention.out", file + "attention.output.dense");
    n.norm(engine + "attention.norm", file + "attention.output.LayerNorm");
    n.linear(engine + "feed_forward.up", file + "intermediate.dense");
    n.linear(engine + "feed_forward.down", file + "output.dense");
    n.norm(engine + "feed_forward.norm", file + "output.LayerNorm");
  }
  if (s.output == Output::tokens) {
    n.linear("head", "lm_head.dense");
    n.norm("head.norm", "lm_head.layer_norm");
    n.tensor("unembedding.bias", "lm_head.bias");
    n.untied(s, "lm_head.decoder.weight");
  } else if (s.output == Output::sequence_classes) {
    n.linear("pooler", "classifier.dense");
    n.linear("classifier", "classifier.out_proj");
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

// DistilBERT: Hugging Face's DistilBertForMaskedLM and so on.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

ModelSpec read_distilbert(const JsonField& c) {
  ModelSpec s =
      bert_spec(c["vocab_size"].integer(0, kMost), c["max_position_embeddings"].integer(0, kMost),
                c["dim"].integer(0, kMost), c["n_layers"].integer(0, kMost), c["n_heads"].integer(0, kMost));
  s.hidden = c["hidden_dim"].integer(0, kMost);
  s.activation = read_activation(c, "activation", "gelu");
  s.segments = 0;
  s.attention.dropout = c.number_or("attention_dropout", 0.1F);
  s.embedding_dropout = s.residual_dropout = c.number_or("dropout", 0.1F);
  s.init_std = c.number_or("initializer_range", 0.02F);
  // Sinusoids, if used, are in the file as a table.
  read_head(c, "DistilBert", s);
  expect_plain_head(s, c, "DistilBert");
  if (s.output == Output::tokens) s.tied = c.boolean_or("tie_word_embeddings", true);
  s.head_dropout = s.residual_dropout;
  if (s.output == Output::sequence_classes) s.head_dropout = c.number_or("seq_classif_dropout", 0.2F);
  if (s.output == Output::span) s.head_dropout = c.number_or("qa_dropout", 0.1F);
  if (s.pooler) s.pooler_activation = Activation::relu;
  return s;
}

OrderedJson write_distilbert(const ModelSpec& s) {
  OrderedJson c = {{"model_type", "distilbert"},
                   {"architectures", {"DistilBert" + head_name(s)}},
                   {"vocab_size", s.vocab_size},
                   {"max_position_embeddings", s.context},
                   {"dim", s.width},
                   {"n_layers", s.layers},
                   {"n_heads", s.attention.heads},
                   {"hidden_dim", s.hidden},
                   {"activation", config_name_of(s.activation)},
                   {"attention_dropout", decimal(s.attention.dropout)},
                   {"dropout", decimal(s.residual_dropout)},
                   {"initializer_range", decimal(s.init_std)},
                   {"sinusoidal_pos_embds", false},
                   {"torch_dtype", "float32"}};
  if (!s.tied) c["tie_word_embeddings"] = false;
  if (s.output == Output::sequence_classes) c["seq_classif_dropout"] = decimal(s.head_dropout);
  if (s.output == Output::span) c["qa_dropout"] = decimal(s.head_dropout);
  write_labels(s, c);
  return c;
}

std::vector<WeightName> distilbert_weights(const ModelSpec& s) {
  WeightNames n;
  add_bert_embeddings(n, s, "distilbert");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("distilbert.transformer.layer.{}.", l), self = file + "attention.";
    add_bert_qkv(n, s, engine, self, {"q_lin", "k_lin", "v_lin"});
    n.linear(engine + "attention.out", self + "out_lin");
    n.norm(engine + "attention.norm", file + "sa_layer_norm");
    n.linear(engine + "feed_forward.up", file + "ffn.lin1");
    n.linear(engine + "feed_forward.down", file + "ffn.lin2");
    n.norm(engine + "feed_forward.norm", file + "output_layer_norm");
  }
  if (s.output == Output::tokens) {
    n.masked_head(s,
                  {"vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector.weight"});
    return n.all;
  }
  if (s.pooler) n.linear("pooler", "pre_classifier");
  add_classifier(n, s);
  return n.all;
}

}  // namespace

const Family& distilbert_family() {
  static const Family family = {
      "distilbert",
      read_distilbert,
      write_distilbert,
      [](const ModelSpec& s) {
        return is_bert(s) && s.architecture == Architecture::encoder && s.segments == 0;
      },
      distilbert_weights,
      "distilbert.",
      [](const ModelSpec& s, const std::string& name) {
        return (s.tied && name == "vocab_projector.weight") || name.ends_with("position_ids");
      },
      Activation::relu};
  return family;
}

}  // namespace qkv

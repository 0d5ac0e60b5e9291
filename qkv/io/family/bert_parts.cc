#include "qkv/io/family/bert_parts.h"

#include "qkv/base/json_value.h"

namespace qkv {

bool is_bert(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  const bool tokens = s.output == Output::tokens;
  return s.architecture != Architecture::encoder_decoder && s.order == Order::stack &&
         s.norm_placement == NormPlacement::post && s.positions == Positions::learned && !a.relative.on() &&
         !s.embedding_scaled && s.embedding_norm && a.bias && a.scaled && !a.scaled_by_layer &&
         a.kv_heads == a.heads && a.d_qk == a.d_vo && a.heads * a.d_qk == s.width && !s.gated &&
         s.feed_forward_bias && s.normalization == Normalization::layer && !s.unembedding_scaled &&
         s.embedding_dropout == s.residual_dropout && (s.pooling == Pooling::first || tokens) &&
         (!tokens || (s.head_width == (s.embedding_width > 0 ? s.embedding_width : s.width) &&
                      s.unembedding_bias && s.pooler == !s.labels.empty())) &&
         (s.output != Output::sequence_classes || s.pooler) && (s.output != Output::embedding || s.pooler) &&
         s.activation != Activation::tanh;
}

void set_head_activation(ModelSpec& s, Activation activation) {
  s.head_activation.reset();
  if (s.head_width > 0 && s.activation != activation) s.head_activation = activation;
}

void expect_plain_head(const ModelSpec& s, const JsonField& c, const char* base) {
  check(s.output == Output::tokens ? s.labels.empty() : s.output != Output::embedding,
        "{}: architectures: of {} only {}ForMaskedLM, ForSequenceClassification, ForMultipleChoice, "
        "ForTokenClassification and ForQuestionAnswering are supported",
        c.place(), base, base);
}

ModelSpec read_bert_like(const JsonField& c, const std::string& base, int64_t unused) {
  ModelSpec s =
      bert_spec(c["vocab_size"].integer(0, kMost), c["max_position_embeddings"].integer(0, kMost) - unused,
                c["hidden_size"].integer(0, kMost), c["num_hidden_layers"].integer(0, kMost),
                c["num_attention_heads"].integer(0, kMost));
  s.hidden = c["intermediate_size"].integer(0, kMost);
  s.activation = read_activation(c, "hidden_act", "gelu");
  s.norm_epsilon = c.number_or("layer_norm_eps", 1e-12F);
  s.attention.dropout = c.number_or("attention_probs_dropout_prob", 0.1F);
  s.embedding_dropout = s.residual_dropout = c.number_or("hidden_dropout_prob", 0.1F);
  s.head_dropout = c.number_or("classifier_dropout", s.residual_dropout);
  s.init_std = c.number_or("initializer_range", 0.02F);
  s.segments = c.integer_or("type_vocab_size", 2, 0, kMost);
  if (c.boolean_or("is_decoder", false)) s.architecture = Architecture::decoder;
  if (const auto type = c.string_or("position_embedding_type", "absolute"); type != "absolute") {
    check(
        type == "relative_key" || type == "relative_key_query",
        "{}: position_embedding_type: '{}' is not supported (absolute, relative_key, relative_key_query are)",
        c.place(), type);
    check(s.architecture == Architecture::encoder && base == "Bert",
          "{}: position_embedding_type: {} is supported for encoders of BERT itself", c.place(), type);
    s.positions = Positions::none;
    s.attention.relative.kind =
        type == "relative_key" ? RelativeAttention::shaw : RelativeAttention::shaw_both;
    s.attention.relative.distance = s.context - 1;
  }
  if (const int64_t e = c.integer_or("embedding_size", s.width, 1, kMost); e != s.width) {
    s.embedding_width = s.head_width = e;
    s.embedding_projected_last = true;
  }
  check(!c.boolean_or("add_cross_attention", false), "{}: add_cross_attention: not supported", c.place());
  read_head(c, base, s);
  if (s.output == Output::tokens) s.tied = c.boolean_or("tie_word_embeddings", true);
  return s;
}

ModelSpec read_roberta_like(const JsonField& c, const std::string& base) {
  ModelSpec first;
  first.first_position = read_first_position(c);
  ModelSpec s = read_bert_like(c, base, rows_before_first(first));
  if (s.positions == Positions::learned) s.first_position = first.first_position;
  set_head_activation(s, Activation::gelu);
  return s;
}

OrderedJson write_roberta_like(const ModelSpec& s, const char* type, const std::string& base) {
  OrderedJson c = write_bert_like(s, type, base, rows_before_first(s));
  c["pad_token_id"] = rows_before_first(s) - 1;
  return c;
}

bool tells_next(const ModelSpec& s) {
  return s.output == Output::sequence_classes && s.labels == std::vector<std::string>{"next", "random"};
}

namespace {

const char* position_type(const ModelSpec& s) {
  switch (s.attention.relative.kind) {
    case RelativeAttention::shaw:
      return "relative_key";
    case RelativeAttention::shaw_both:
      return "relative_key_query";
    default:
      return "absolute";
  }
}

}  // namespace

OrderedJson write_bert_like(const ModelSpec& s, const char* type, const std::string& base, int64_t unused) {
  const std::string head = base == "Bert" && tells_next(s) ? "ForNextSentencePrediction" : head_name(s);
  OrderedJson config = {{"model_type", type},
                        {"architectures", {base + head}},
                        {"vocab_size", s.vocab_size},
                        {"max_position_embeddings", s.context + unused},
                        {"hidden_size", s.width},
                        {"num_hidden_layers", s.layers},
                        {"num_attention_heads", s.attention.heads},
                        {"intermediate_size", s.hidden},
                        {"hidden_act", config_name_of(s.activation)},
                        {"layer_norm_eps", decimal(s.norm_epsilon)},
                        {"attention_probs_dropout_prob", decimal(s.attention.dropout)},
                        {"hidden_dropout_prob", decimal(s.residual_dropout)},
                        {"classifier_dropout", decimal(s.head_dropout)},
                        {"initializer_range", decimal(s.init_std)},
                        {"type_vocab_size", s.segments},
                        {"position_embedding_type", position_type(s)},
                        {"torch_dtype", "float32"}};
  if (!s.tied) config["tie_word_embeddings"] = false;
  if (s.architecture == Architecture::decoder) {
    config["is_decoder"] = true;
    config["architectures"] = {base + "LMHeadModel"};
  }
  write_labels(s, config);
  return config;
}

void add_bert_embeddings(WeightNames& n, const ModelSpec& s, const std::string& base, int64_t unused) {
  const std::string e = base + ".embeddings.";
  n.tensor("embedding.token", e + "word_embeddings.weight");
  if (s.positions == Positions::learned)
    n.all.push_back({"embedding.position", e + "position_embeddings.weight", false, 0, 0, unused});
  if (s.segments > 0) n.tensor("embedding.segment", e + "token_type_embeddings.weight");
  n.norm("embedding.norm", e + "LayerNorm");
}

void add_bert_qkv(WeightNames& n, const ModelSpec& s, const std::string& block, const std::string& self,
                  const QkvNames& parts) {
  n.parts(block + "attention.qkv", {self + parts.query, self + parts.key, self + parts.value},
          {s.width, s.width, s.width});
}

void add_bert_outputs(WeightNames& n, const std::string& block, const std::string& file,
                      const OutputNames& outputs) {
  n.linear(block + "attention.out", file + outputs.out);
  n.norm(block + "attention.norm", file + outputs.norm);
  n.linear(block + "feed_forward.up", file + "intermediate.dense");
  n.linear(block + "feed_forward.down", file + "output.dense");
  n.norm(block + "feed_forward.norm", file + "output.LayerNorm");
}

WeightNames bert_stack(const ModelSpec& s, const std::string& base, int64_t unused) {
  WeightNames n;
  add_bert_embeddings(n, s, base, unused);
  const char* stack = s.architecture == Architecture::decoder ? "decoder" : "encoder";
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string block = fmt::format("{}.block.{}.", stack, l),
                      file = fmt::format("{}.encoder.layer.{}.", base, l), self = file + "attention.self.";
    add_bert_qkv(n, s, block, self);
    if (s.attention.relative.on()) n.tensor(block + "attention.distance", self + "distance_embedding.weight");
    add_bert_outputs(n, block, file);
  }
  return n;
}

std::vector<WeightName> weights_named_as_bert(const ModelSpec& s) {
  WeightNames n = bert_stack(s, "bert");
  if (s.pooler) n.linear("pooler", "bert.pooler.dense");
  if (s.output == Output::tokens) {
    n.masked_head(s, kBertHead);
    if (!s.labels.empty()) n.linear("classifier", "cls.seq_relationship");
  } else if (s.classes() > 0) {
    add_classifier(n, s);
  }
  return n.all;
}

void add_classification_head(WeightNames& n, const ModelSpec& s, const std::string& of_choices) {
  const bool choices = s.problem == Problem::multiple_choice;
  n.linear("pooler", choices ? of_choices : "classifier.dense");
  n.linear("classifier", choices ? "classifier" : "classifier.out_proj");
}

void add_roberta_heads(WeightNames& n, const ModelSpec& s, const std::string& base) {
  if (s.output == Output::tokens)
    n.masked_head(s, kRobertaHead);
  else if (s.output == Output::sequence_classes)
    add_classification_head(n, s, base + ".pooler.dense");
  else if (s.output == Output::span || s.output == Output::token_classes)
    add_classifier(n, s);
  else if (s.pooler)
    n.linear("pooler", base + ".pooler.dense");
}

void add_classifier(WeightNames& n, const ModelSpec& s) {
  n.linear("classifier", s.output == Output::span ? "qa_outputs" : "classifier");
}

bool is_extra_in_bert(const ModelSpec& s, const std::string& name) {
  return name.ends_with("embeddings.position_ids") ||
         (s.positions != Positions::learned && name.ends_with("embeddings.position_embeddings.weight")) ||
         name == "cls.predictions.decoder.bias" || name == "lm_head.decoder.bias" ||
         (s.tied && (name == "cls.predictions.decoder.weight" || name == "lm_head.decoder.weight")) ||
         (s.labels.empty() && name.starts_with("cls.seq_relationship.")) ||
         (!s.pooler && name.find("pooler.dense.") != std::string::npos);
}

}  // namespace qkv

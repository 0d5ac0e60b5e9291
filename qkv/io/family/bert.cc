// BERT and its kin: Hugging Face's BertFor..., RobertaForMaskedLM and so on, DistilBertFor....
#include <utility>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

// Vectors of distances, as far as a table of positions would reach, in its place.
bool is_bert_of_distances(ModelSpec s) {
  const RelativeSpec r = std::exchange(s.attention.relative, {});
  const Positions positions = std::exchange(s.positions, Positions::learned);
  return is_bert(s) && positions == Positions::none && s.architecture == Architecture::encoder &&
         (r.kind == RelativeAttention::shaw || r.kind == RelativeAttention::shaw_both) &&
         r.distance == s.context - 1;
}

}  // namespace

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

namespace {

// BERT's own classifier, which names its weights otherwise: whether the second text of a pair follows the
// first.
bool tells_next(const ModelSpec& s) {
  return s.output == Output::sequence_classes && s.labels == std::vector<std::string>{"next", "random"};
}

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

namespace {

const char* stack_of(const ModelSpec& s) {
  return s.architecture == Architecture::decoder ? "decoder" : "encoder";
}

std::vector<WeightName> bert_like_weights(const ModelSpec& s, const std::string& base, int64_t unused) {
  WeightNames n;
  const std::string e = base + ".embeddings.";
  n.all.push_back({"embedding.token", e + "word_embeddings.weight"});
  if (s.positions == Positions::learned)
    n.all.push_back({"embedding.position", e + "position_embeddings.weight", false, 0, 0, unused});
  if (s.segments > 0) n.all.push_back({"embedding.segment", e + "token_type_embeddings.weight"});
  n.norm("embedding.norm", e + "LayerNorm");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("{}.block.{}.", stack_of(s), l),
                      file = fmt::format("{}.encoder.layer.{}.", base, l), self = file + "attention.self.";
    n.parts(engine + "attention.qkv", {self + "query", self + "key", self + "value"},
            {s.width, s.width, s.width});
    if (s.attention.relative.on())
      n.tensor(engine + "attention.distance", self + "distance_embedding.weight");
    n.linear(engine + "attention.out", file + "attention.output.dense");
    n.norm(engine + "attention.norm", file + "attention.output.LayerNorm");
    n.linear(engine + "feed_forward.up", file + "intermediate.dense");
    n.linear(engine + "feed_forward.down", file + "output.dense");
    n.norm(engine + "feed_forward.norm", file + "output.LayerNorm");
  }
  return n.all;
}

// The positions of tokens 0, 1, ... that old files carry, and tied weights stored once more.
bool is_extra(const ModelSpec& s, const std::string& name) {
  return name.ends_with("embeddings.position_ids") ||
         (s.positions != Positions::learned && name.ends_with("embeddings.position_embeddings.weight")) ||
         name == "cls.predictions.decoder.bias" || name == "lm_head.decoder.bias" ||
         (s.tied && (name == "cls.predictions.decoder.weight" || name == "lm_head.decoder.weight")) ||
         (s.labels.empty() && name.starts_with("cls.seq_relationship.")) ||
         (!s.pooler && name.find("pooler.dense.") != std::string::npos);
}

std::vector<WeightName> weights_named_as_bert(const ModelSpec& s, const std::string& base) {
  WeightNames n{bert_like_weights(s, base, 0)};
  if (s.pooler) n.linear("pooler", "bert.pooler.dense");
  if (s.output == Output::tokens) {
    n.linear("head", "cls.predictions.transform.dense");
    n.norm("head.norm", "cls.predictions.transform.LayerNorm");
    n.all.push_back({"unembedding.bias", "cls.predictions.bias"});
    n.untied(s, "cls.predictions.decoder.weight");
    if (!s.labels.empty()) n.linear("classifier", "cls.seq_relationship");
  } else if (s.output == Output::span) {
    n.linear("classifier", "qa_outputs");
  } else if (s.classes() > 0) {
    n.linear("classifier", "classifier");
  }
  return n.all;
}

std::vector<WeightName> bert_weights(const ModelSpec& s) {
  std::vector<WeightName> all = weights_named_as_bert(s, "bert");
  for (WeightName& name : all)
    if (tells_next(s) && name.file.starts_with("classifier.")) {
      name.also = name.file;  // of a BertForSequenceClassification with these two labels
      name.file = "cls.seq_relationship" + name.file.substr(std::string("classifier").size());
    }
  return all;
}

std::vector<WeightName> roberta_weights(const ModelSpec& s) {
  WeightNames n{bert_like_weights(s, "roberta", rows_before_first(s))};
  if (s.output == Output::tokens) {
    n.linear("head", "lm_head.dense");
    n.norm("head.norm", "lm_head.layer_norm");
    n.all.push_back({"unembedding.bias", "lm_head.bias"});
    n.untied(s, "lm_head.decoder.weight");
  } else if (s.output == Output::span) {
    n.linear("classifier", "qa_outputs");
  } else if (s.output == Output::sequence_classes) {
    n.linear("pooler", "classifier.dense");
    n.linear("classifier", "classifier.out_proj");
  } else if (s.output == Output::token_classes) {
    n.linear("classifier", "classifier");
  } else if (s.pooler) {
    n.linear("pooler", "roberta.pooler.dense");
  }
  return n.all;
}

// Of models whose heads are an unembedding, classes of a sequence or of tokens, and the ends of an answer.
void expect_plain_head(const ModelSpec& s, const JsonField& c, const char* base) {
  check(s.output == Output::tokens ? s.labels.empty() : s.output != Output::embedding,
        "{}: architectures: of {} only {}ForMaskedLM, ForSequenceClassification, ForTokenClassification and "
        "ForQuestionAnswering are supported",
        c.place(), base, base);
}

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
  // The sinusoids, where wanted, are in the file as a table.
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
  const std::string e = "distilbert.embeddings.";
  n.all.push_back({"embedding.token", e + "word_embeddings.weight"});
  n.all.push_back({"embedding.position", e + "position_embeddings.weight"});
  n.norm("embedding.norm", e + "LayerNorm");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("distilbert.transformer.layer.{}.", l), self = file + "attention.";
    n.parts(engine + "attention.qkv", {self + "q_lin", self + "k_lin", self + "v_lin"},
            {s.width, s.width, s.width});
    n.linear(engine + "attention.out", self + "out_lin");
    n.norm(engine + "attention.norm", file + "sa_layer_norm");
    n.linear(engine + "feed_forward.up", file + "ffn.lin1");
    n.linear(engine + "feed_forward.down", file + "ffn.lin2");
    n.norm(engine + "feed_forward.norm", file + "output_layer_norm");
  }
  if (s.output == Output::tokens) {
    n.linear("head", "vocab_transform");
    n.norm("head.norm", "vocab_layer_norm");
    n.all.push_back({"unembedding.bias", "vocab_projector.bias"});
    n.untied(s, "vocab_projector.weight");
    return n.all;
  }
  if (s.pooler) n.linear("pooler", "pre_classifier");
  n.linear("classifier", s.output == Output::span ? "qa_outputs" : "classifier");
  return n.all;
}

std::vector<WeightName> albert_weights(const ModelSpec& s) {
  WeightNames n;
  const std::string e = "albert.embeddings.";
  n.tensor("embedding.token", e + "word_embeddings.weight");
  n.tensor("embedding.position", e + "position_embeddings.weight");
  if (s.segments > 0) n.tensor("embedding.segment", e + "token_type_embeddings.weight");
  n.norm("embedding.norm", e + "LayerNorm");
  n.linear("embedding.projection", "albert.encoder.embedding_hidden_mapping_in");
  for (int64_t g = 0, l = 0; g < s.layer_groups; ++g) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("albert.encoder.albert_layer_groups.{}.albert_layers.0.", g),
                      self = file + "attention.";
    n.parts(engine + "attention.qkv", {self + "query", self + "key", self + "value"},
            {s.width, s.width, s.width});
    n.linear(engine + "attention.out", self + "dense");
    n.norm(engine + "attention.norm", self + "LayerNorm");
    n.linear(engine + "feed_forward.up", file + "ffn");
    n.linear(engine + "feed_forward.down", file + "ffn_output");
    n.norm(engine + "feed_forward.norm", file + "full_layer_layer_norm");
    while (l < s.layers && l * s.layer_groups / s.layers == g) ++l;
  }
  if (s.output == Output::tokens) {
    n.linear("head", "predictions.dense");
    n.norm("head.norm", "predictions.LayerNorm");
    n.tensor("unembedding.bias", "predictions.bias");
    n.untied(s, "predictions.decoder.weight");
    return n.all;
  }
  if (s.pooler) n.linear("pooler", "albert.pooler");
  n.linear("classifier", s.output == Output::span ? "qa_outputs" : "classifier");
  return n.all;
}

std::vector<WeightName> electra_weights(const ModelSpec& s) {
  WeightNames n{bert_like_weights(s, "electra", 0)};
  if (s.embedding_width > 0) n.linear("embedding.projection", "electra.embeddings_project");
  if (s.output == Output::token_classes && s.pooler) {  // which tokens were replaced
    n.linear("pooler", "discriminator_predictions.dense");
    n.linear("classifier", "discriminator_predictions.dense_prediction");
  } else if (s.output == Output::sequence_classes) {
    n.linear("pooler", "classifier.dense");
    n.linear("classifier", "classifier.out_proj");
  } else if (s.output != Output::tokens) {
    n.linear("classifier", s.output == Output::span ? "qa_outputs" : "classifier");
  } else {
    n.linear("head", "generator_predictions.dense");
    n.norm("head.norm", "generator_predictions.LayerNorm");
    n.tensor("unembedding.bias", "generator_lm_head.bias");
    n.untied(s, "generator_lm_head.weight");
  }
  return n.all;
}

bool is_masked_lm(const ModelSpec& s) {
  return is_bert(s) && s.architecture == Architecture::encoder && s.output == Output::tokens &&
         s.labels.empty();
}

}  // namespace

const Family& albert_family() {
  static const Family family = {
      "albert",
      [](const JsonField& c) {
        ModelSpec s = read_bert_like(c, "Albert", 0);
        expect_plain_head(s, c, "Albert");
        check(c.integer_or("inner_group_num", 1, 1, kMost) == 1, "{}: inner_group_num: only 1 is supported",
              c.place());
        // There is a projection even where the widths are equal.
        s.embedding_width = c.integer_or("embedding_size", 128, 1, kMost);
        if (s.output == Output::tokens) s.head_width = s.embedding_width;
        s.embedding_projected_last = true;
        s.head_dropout = c.number_or("classifier_dropout_prob", 0.1F);
        s.layer_groups = c.integer_or("num_hidden_groups", 1, 1, kMost);
        s.activation = read_activation(c, "hidden_act", "gelu_new");
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_bert_like(s, "albert", "Albert", 0);
        c.erase("classifier_dropout");
        c["classifier_dropout_prob"] = decimal(s.head_dropout);
        c["embedding_size"] = s.embedding_width;
        c["num_hidden_groups"] = s.layer_groups;
        c["inner_group_num"] = 1;
        return c;
      },
      [](const ModelSpec& s) {
        return is_bert(s) && s.architecture == Architecture::encoder && s.layer_groups > 0;
      },
      albert_weights,
      "albert.",
      [](const ModelSpec& s, const std::string& name) {
        return name.ends_with("embeddings.position_ids") || name == "predictions.decoder.bias" ||
               (s.tied && name == "predictions.decoder.weight") || name.find("pooler.") != std::string::npos;
      }};
  return family;
}

const Family& electra_family() {
  static const Family family = {
      "electra",
      [](const JsonField& c) {
        ModelSpec s = read_bert_like(c, "Electra", 0);
        if (const auto names = c.find("architectures");
            names && names->size() > 0 && names->at(0).string() == "ElectraForPreTraining") {
          s.output = Output::token_classes;
          s.labels = {"replaced"};
          s.head_width = 0;
          s.unembedding_bias = false;
          s.pooler = true;
          s.pooler_activation = s.activation;
          s.head_dropout = 0;
          return s;
        }
        expect_plain_head(s, c, "Electra");  // and ForPreTraining, as above
        set_head_activation(s, Activation::gelu);
        if (s.pooler) s.pooler_activation = Activation::gelu;
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_bert_like(s, "electra", "Electra", 0);
        c["embedding_size"] = s.embedding_width > 0 ? s.embedding_width : s.width;
        if (s.output == Output::token_classes && s.pooler) {
          c["architectures"] = {"ElectraForPreTraining"};
          c.erase("id2label");
          c.erase("label2id");
        }
        return c;
      },
      [](const ModelSpec& s) {
        return is_bert(s) && s.architecture == Architecture::encoder &&
               (s.embedding_width > 0 || s.family == "electra" ||
                (s.output == Output::token_classes && s.pooler));
      },
      electra_weights,
      "electra.",
      [](const ModelSpec& s, const std::string& name) {
        return name.ends_with("embeddings.position_ids") || (s.tied && name == "generator_lm_head.weight");
      },
      Activation::gelu};
  return family;
}

const Family& big_bird_family() {
  static const Family family = {
      "big_bird",
      [](const JsonField& c) {
        const auto type = c.string_or("attention_type", "block_sparse");
        check(type == "original_full" || type == "block_sparse",
              "{}: attention_type: '{}' is not supported (original_full, block_sparse are)", c.place(), type);
        check(c.boolean_or("use_bias", true), "{}: use_bias: only true is supported", c.place());
        ModelSpec s = read_bert_like(c, "BigBird", 0);
        check(s.output == Output::tokens && s.labels.empty(),
              "{}: architectures: of BigBird only BigBirdForMaskedLM is supported", c.place());
        s.activation = read_activation(c, "hidden_act", "gelu_new");
        s.embedding_scaled = c.boolean_or("rescale_embeddings", false);
        if (type == "block_sparse") {
          // In use its random blocks are all the first; short sequences see all.
          const auto block = c.integer_or("block_size", 64, 1, 1 << 20),
                     random = c.integer_or("num_random_blocks", 3, 0, 1024);
          s.attention.patterns = {{.block = block,
                                   .neighbours = 1,
                                   .ends = true,
                                   .beyond = (5 + 2 * random) * block,
                                   .first_block = 1 + random}};
        }
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_bert_like(s, "big_bird", "BigBird", 0);
        c["attention_type"] = s.attention.patterns.empty() ? "original_full" : "block_sparse";
        if (!s.attention.patterns.empty()) {
          c["block_size"] = s.attention.patterns[0].block;
          c["num_random_blocks"] = s.attention.patterns[0].first_block - 1;
        }
        c["use_bias"] = true;
        if (s.embedding_scaled) c["rescale_embeddings"] = true;
        return c;
      },
      [](const ModelSpec& s) {
        ModelSpec unscaled = s;
        unscaled.embedding_scaled = false;
        return s.family == "big_bird" && is_masked_lm(unscaled);
      },
      [](const ModelSpec& s) { return weights_named_as_bert(s, "bert"); },
      "bert.",
      [](const ModelSpec& s, const std::string& name) {  // whose pooler has no "dense"
        return is_extra(s, name) || name.starts_with("bert.pooler.");
      }};
  return family;
}

const Family& bert_family() {
  static const Family family = {
      "bert",
      [](const JsonField& c) { return read_bert_like(c, "Bert", 0); },
      [](const ModelSpec& s) { return write_bert_like(s, "bert", "Bert", 0); },
      [](const ModelSpec& s) { return (is_bert(s) || is_bert_of_distances(s)) && s.segments > 0; },
      bert_weights,
      "bert.",
      is_extra};
  return family;
}

const Family& roberta_family() {
  static const Family family = {
      "roberta",
      [](const JsonField& c) { return read_roberta_like(c, "Roberta"); },
      [](const ModelSpec& s) { return write_roberta_like(s, "roberta", "Roberta"); },
      [](const ModelSpec& s) { return s.family == "roberta" && is_bert(s); },
      roberta_weights,
      "roberta.",
      is_extra};
  return family;
}

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

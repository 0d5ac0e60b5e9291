#include "qkv/io/family/deberta_parts.h"

#include <algorithm>
#include <cctype>

#include "qkv/base/json_value.h"

namespace qkv {
namespace {

// "pos_att_type": a list, or words between bars.
bool has_term(const JsonField& c, const std::string& term) {
  const auto types = c.find("pos_att_type");
  if (!types) return false;
  if (types->json().is_string()) {
    std::string words = "|";
    for (const char letter : types->string() + "|")
      if (letter != ' ') words += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return words.find("|" + term + "|") != std::string::npos;
  }
  for (size_t i = 0; i < types->size(); ++i)
    if (types->at(i).string() == term) return true;
  return false;
}

}  // namespace

ModelSpec read_deberta(const JsonField& c, const std::string& base) {
  ModelSpec s =
      bert_spec(c["vocab_size"].integer(0, kMost), c.integer_or("max_position_embeddings", 512, 0, kMost),
                c["hidden_size"].integer(0, kMost), c["num_hidden_layers"].integer(0, kMost),
                c["num_attention_heads"].integer(0, kMost));
  s.hidden = c["intermediate_size"].integer(0, kMost);
  s.activation = read_activation(c, "hidden_act", "gelu");
  s.norm_epsilon = c.number_or("layer_norm_eps", 1e-7F);
  s.attention.dropout = c.number_or("attention_probs_dropout_prob", 0.1F);
  s.embedding_dropout = s.residual_dropout = c.number_or("hidden_dropout_prob", 0.1F);
  s.init_std = c.number_or("initializer_range", 0.02F);
  s.segments = c.integer_or("type_vocab_size", 0, 0, kMost);
  s.positions = c.boolean_or("position_biased_input", true) ? Positions::learned : Positions::none;
  if (const int64_t e = c.integer_or("embedding_size", s.width, 1, kMost); e != s.width)
    fail("{}: embedding_size: {}: only hidden_size is supported", c.place(), e);
  check(c.boolean_or("relative_attention", false), "{}: relative_attention: only true is supported",
        c.place());
  RelativeSpec& r = s.attention.relative;
  r.kind = RelativeAttention::disentangled;
  const auto distance = c.integer_or("max_relative_positions", -1, -1, kMost);
  r.distance = distance > 0 ? distance : s.context;
  r.by_content = has_term(c, "c2p");
  r.by_position = has_term(c, "p2c");
  check(r.by_content || r.by_position, "{}: pos_att_type: expected c2p, p2c or both", c.place());
  read_head(c, base, s);
  if (s.output == Output::tokens) s.tied = c.boolean_or("tie_word_embeddings", true);
  check(s.output != Output::tokens || s.labels.empty(),
        "{}: architectures: {}ForPreTraining is not supported", c.place(), base);
  if (s.pooler && s.output == Output::sequence_classes) {
    s.pooler_activation = read_activation(c, "pooler_hidden_act", "gelu");
    s.head_dropout = c.number_or("cls_dropout", s.residual_dropout);
    check(c.integer_or("pooler_hidden_size", s.width, 1, kMost) == s.width,
          "{}: pooler_hidden_size: only hidden_size is supported", c.place());
  } else {
    s.pooler = false;
    s.head_dropout = s.residual_dropout;
  }
  return s;
}

OrderedJson write_deberta(const ModelSpec& s, const char* type, const std::string& base) {
  const RelativeSpec& r = s.attention.relative;
  OrderedJson types = OrderedJson::array();
  if (r.by_content) types.push_back("c2p");
  if (r.by_position) types.push_back("p2c");
  OrderedJson config = write_bert_like(s, type, base, 0);
  for (const char* key : {"classifier_dropout", "position_embedding_type"}) config.erase(key);
  config["position_biased_input"] = s.positions == Positions::learned;
  config["relative_attention"] = true;
  config["max_relative_positions"] = r.distance;
  config["pos_att_type"] = types;
  config["pooler_hidden_size"] = s.width;
  config["pooler_hidden_act"] = config_name_of(s.pooler ? s.pooler_activation : Activation::gelu);
  config["cls_dropout"] = decimal(s.head_dropout);
  config["pad_token_id"] = 0;
  return config;
}

WeightNames deberta_stack(const ModelSpec& s,
                          void (*add_attention)(WeightNames&, const ModelSpec&, const std::string& engine,
                                                const std::string& file)) {
  WeightNames n;
  add_bert_embeddings(n, s, "deberta");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("deberta.encoder.layer.{}.", l);
    add_attention(n, s, engine + "attention.", file + "attention.self.");
    add_bert_outputs(n, engine, file);
  }
  n.tensor("encoder.relative", "deberta.encoder.rel_embeddings.weight");
  if (s.attention.relative.normed) n.norm("encoder.relative_norm", "deberta.encoder.LayerNorm");
  if (s.pooler) n.linear("pooler", "pooler.dense");
  if (s.output == Output::tokens) {
    n.masked_head(s, kBertHead);
  } else if (s.classes() > 0) {
    add_classifier(n, s);
  }
  return n;
}

Family deberta_like(const char* type, ModelSpec (*read)(const JsonField&),
                    OrderedJson (*write)(const ModelSpec&),
                    std::vector<WeightName> (*weights)(const ModelSpec&)) {
  return {
      type,
      read,
      write,
      [](const ModelSpec& s) {
        return s.attention.relative.kind == RelativeAttention::disentangled &&
               s.architecture == Architecture::encoder &&
               (s.output != Output::tokens || s.head_width == s.width);
      },
      weights,
      "deberta.",
      [](const ModelSpec& s, const std::string& name) {
        return name.ends_with("embeddings.position_ids") || name == "cls.predictions.decoder.bias" ||
               (s.tied && name == "cls.predictions.decoder.weight") ||
               name.starts_with("mask_predictions.") || name.starts_with("lm_predictions.") ||  // other heads
               (s.positions == Positions::none && name.ends_with("embeddings.position_embeddings.weight"));
      },
      Activation::gelu};
}

}  // namespace qkv

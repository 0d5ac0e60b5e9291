// ALBERT: Hugging Face's AlbertForMaskedLM and so on.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

std::vector<WeightName> albert_weights(const ModelSpec& s) {
  WeightNames n;
  add_bert_embeddings(n, s, "albert");
  n.linear("embedding.projection", "albert.encoder.embedding_hidden_mapping_in");
  for (int64_t g = 0, l = 0; g < s.layer_groups; ++g) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("albert.encoder.albert_layer_groups.{}.albert_layers.0.", g),
                      self = file + "attention.";
    add_bert_qkv(n, s, engine, self);
    n.linear(engine + "attention.out", self + "dense");
    n.norm(engine + "attention.norm", self + "LayerNorm");
    n.linear(engine + "feed_forward.up", file + "ffn");
    n.linear(engine + "feed_forward.down", file + "ffn_output");
    n.norm(engine + "feed_forward.norm", file + "full_layer_layer_norm");
    while (l < s.layers && l * s.layer_groups / s.layers == g) ++l;
  }
  if (s.output == Output::tokens) {
    n.masked_head(
        s, {"predictions.dense", "predictions.LayerNorm", "predictions.bias", "predictions.decoder.weight"});
    return n.all;
  }
  if (s.pooler) n.linear("pooler", "albert.pooler");
  add_classifier(n, s);
  return n.all;
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
        // There is a projection even if the widths are equal.
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

}  // namespace qkv

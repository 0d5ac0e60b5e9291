// ELECTRA: Hugging Face's ElectraForPreTraining, ElectraForMaskedLM and so on.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

std::vector<WeightName> electra_weights(const ModelSpec& s) {
  WeightNames n = bert_stack(s, "electra");
  if (s.embedding_width > 0) n.linear("embedding.projection", "electra.embeddings_project");
  if (s.output == Output::token_classes && s.pooler) {  // detects replaced tokens
    n.linear("pooler", "discriminator_predictions.dense");
    n.linear("classifier", "discriminator_predictions.dense_prediction");
  } else if (s.output == Output::sequence_classes) {
    add_classification_head(n, s, "sequence_summary.summary");
  } else if (s.output != Output::tokens) {
    add_classifier(n, s);
  } else {
    n.masked_head(s, {"generator_predictions.dense", "generator_predictions.LayerNorm",
                      "generator_lm_head.bias", "generator_lm_head.weight"});
  }
  return n.all;
}

}  // namespace

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
        expect_plain_head(s, c, "Electra");  // also ForPreTraining, above
        set_head_activation(s, Activation::gelu);
        if (s.pooler) s.pooler_activation = Activation::gelu;
        if (s.problem == Problem::multiple_choice) {
          check(c.string_or("summary_type", "first") == "first" && c.boolean_or("summary_use_proj", true),
                "{}: summary_type: only first, projected, is supported", c.place());
          s.pooler_activation = read_activation(c, "summary_activation", "gelu");
          s.head_dropout = c.number_or("summary_last_dropout", 0.1F);
        }
        return s;
      },
      [](const ModelSpec& s) {
        OrderedJson c = write_bert_like(s, "electra", "Electra", 0);
        c["embedding_size"] = s.embedding_width > 0 ? s.embedding_width : s.width;
        if (s.problem == Problem::multiple_choice) {
          c["summary_type"] = "first";
          c["summary_use_proj"] = true;
          c["summary_activation"] = config_name_of(s.pooler_activation);
          c["summary_last_dropout"] = decimal(s.head_dropout);
        }
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

}  // namespace qkv

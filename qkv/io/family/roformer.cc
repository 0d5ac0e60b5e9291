// RoFormer: Hugging Face's RoFormerForMaskedLM and so on.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bert_parts.h"

namespace qkv {
namespace {

ModelSpec read_roformer(const JsonField& c) {
  ModelSpec s = read_bert_like(c, "RoFormer", 0);
  check(s.architecture == Architecture::encoder, "{}: is_decoder: only false is supported", c.place());
  s.positions = Positions::rotary;
  RotarySpec& r = s.attention.rotary;
  r.width = s.attention.d_qk;
  r.layout = RotaryLayout::interleaved;
  r.values = c.boolean_or("rotary_value", false);
  expect_plain_head(s, c, "RoFormer");
  check(
      s.problem != Problem::multiple_choice,
      "{}: architectures: RoFormerForMultipleChoice is not supported: it reads the last column, padding too",
      c.place());
  if (s.pooler) s.pooler_activation = s.activation;
  return s;
}

OrderedJson write_roformer(const ModelSpec& s) {
  OrderedJson c = write_bert_like(s, "roformer", "RoFormer", 0);
  c.erase("position_embedding_type");
  c["embedding_size"] = s.embedding_width > 0 ? s.embedding_width : s.width;
  c["rotary_value"] = s.attention.rotary.values;
  return c;
}

std::vector<WeightName> roformer_weights(const ModelSpec& s) {
  WeightNames n = bert_stack(s, "roformer");
  if (s.embedding_width > 0) n.linear("embedding.projection", "roformer.embeddings_project");
  if (s.output == Output::tokens)
    n.masked_head(s, kBertHead);
  else if (s.output == Output::sequence_classes)
    add_classification_head(n, s, "");
  else
    add_classifier(n, s);
  return n.all;
}

}  // namespace

const Family& roformer_family() {
  static const Family family = {
      "roformer",
      read_roformer,
      write_roformer,
      [](const ModelSpec& s) {
        ModelSpec other = s;  // BERT with other positions
        other.positions = Positions::learned;
        return s.positions == Positions::rotary && s.architecture == Architecture::encoder && is_bert(other);
      },
      roformer_weights,
      "roformer.",
      [](const ModelSpec& s, const std::string& name) {
        return is_extra_in_bert(s, name) || name == "roformer.encoder.embed_positions.weight";
      },
      Activation::gelu};
  return family;
}

}  // namespace qkv

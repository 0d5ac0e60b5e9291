#include "qkv/io/family/vit_parts.h"

#include "qkv/base/json_value.h"

namespace qkv {
namespace {

void read_labels(const JsonField& c, ModelSpec& s) {
  if (!c.find("id2label")) {  // Hugging Face's two default labels
    s.labels = {"LABEL_0", "LABEL_1"};
    return;
  }
  const JsonField names = c["id2label"];
  const auto n = static_cast<int64_t>(names.object().size());
  check(n > 0, "{}: id2label: a classifier needs labels", c.place());
  for (int64_t i = 0; i < n; ++i) s.labels.push_back(names[std::to_string(i)].string());
}

}  // namespace

ModelSpec read_image_config(const JsonField& c, const ImageFamily& family) {
  ModelSpec s;
  s.architecture = Architecture::encoder;
  FeatureSpec& f = s.features;
  f.kind = FeatureSpec::Kind::patches;
  f.image = c["image_size"].integer(1, 1 << 14);
  f.patch = c["patch_size"].integer(1, f.image);
  f.channels = c.integer_or("num_channels", 3, 1, 1 << 16);
  s.vocab_size = family.tokens;
  s.context = f.patches() + family.tokens;
  s.width = c["hidden_size"].integer(1, kMost);
  s.layers = c["num_hidden_layers"].integer(1, kMost);
  AttentionSpec& a = s.attention;
  a.heads = a.kv_heads = c["num_attention_heads"].integer(1, kMost);
  check(s.width % a.heads == 0, "{}: hidden_size: {} is not divisible by {} heads", c.place(), s.width,
        a.heads);
  a.d_qk = a.d_vo = s.width / a.heads;
  a.bias = c.boolean_or("qkv_bias", true);
  s.hidden = c["intermediate_size"].integer(1, kMost);
  s.activation = read_activation(c, "hidden_act", "gelu");
  s.norm_epsilon = c.number_or("layer_norm_eps", 1e-12F);
  a.dropout = c.number_or("attention_probs_dropout_prob", 0);
  s.embedding_dropout = s.residual_dropout = c.number_or("hidden_dropout_prob", 0);
  s.init_std = c.number_or("initializer_range", 0.02F);
  const std::string base = family.base;
  std::string name = base + "ForImageClassification";
  if (const auto list = c.find("architectures"); list && list->size() > 0) name = list->at(0).string();
  f.distilled = family.tokens == 2 && name == base + "ForImageClassificationWithTeacher";
  if (f.distilled || name == base + "ForImageClassification") {
    s.output = Output::sequence_classes;
    read_labels(c, s);
  } else {
    check(name == base + "Model",
          "{}: architectures: '{}' is not supported ({}ForImageClassification{} and {}Model are)", c.place(),
          name, base, family.tokens == 2 ? ", DeiTForImageClassificationWithTeacher" : "", base);
    s.output = Output::embedding;
    s.pooler = true;
  }
  return s;
}

OrderedJson write_image_config(const ModelSpec& s, const ImageFamily& family) {
  const char* head = s.output == Output::embedding ? "Model"
                     : s.features.distilled        ? "ForImageClassificationWithTeacher"
                                                   : "ForImageClassification";
  OrderedJson config = {{"model_type", family.type},
                        {"architectures", {std::string(family.base) + head}},
                        {"image_size", s.features.image},
                        {"patch_size", s.features.patch},
                        {"num_channels", s.features.channels},
                        {"hidden_size", s.width},
                        {"num_hidden_layers", s.layers},
                        {"num_attention_heads", s.attention.heads},
                        {"intermediate_size", s.hidden},
                        {"hidden_act", config_name_of(s.activation)},
                        {"layer_norm_eps", decimal(s.norm_epsilon)},
                        {"attention_probs_dropout_prob", decimal(s.attention.dropout)},
                        {"hidden_dropout_prob", decimal(s.residual_dropout)},
                        {"initializer_range", decimal(s.init_std)},
                        {"qkv_bias", s.attention.bias},
                        {"torch_dtype", "float32"}};
  write_labels(s, config);
  return config;
}

std::vector<WeightName> image_weights(const ModelSpec& s, const ImageFamily& family) {
  WeightNames n;
  const std::string base = std::string(family.prefix) + ".", e = base + "embeddings.";
  n.all.push_back(
      {.engine = "embedding.token", .file = e + "cls_token", .rows = 1, .shape = {1, 1, s.width}});
  if (family.tokens == 2)
    n.all.push_back({.engine = "embedding.token",
                     .file = e + "distillation_token",
                     .first_row = 1,
                     .rows = 1,
                     .shape = {1, 1, s.width}});
  n.all.push_back(
      {.engine = "embedding.position", .file = e + "position_embeddings", .shape = {1, s.context, s.width}});
  const FeatureSpec& f = s.features;
  n.all.push_back({.engine = "embedding.patch.weight",
                   .file = e + "patch_embeddings.projection.weight",
                   .shape = {s.width, f.channels, f.patch, f.patch}});
  n.tensor("embedding.patch.bias", e + "patch_embeddings.projection.bias");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("encoder.block.{}.", l),
                      file = fmt::format("{}encoder.layer.{}.", base, l),
                      self = file + "attention.attention.";
    n.bias = s.attention.bias;
    n.parts(engine + "attention.qkv", {self + "query", self + "key", self + "value"},
            {s.width, s.width, s.width});
    n.bias = true;
    n.linear(engine + "attention.out", file + "attention.output.dense");
    n.norm(engine + "attention.norm", file + "layernorm_before");
    n.linear(engine + "feed_forward.up", file + "intermediate.dense");
    n.linear(engine + "feed_forward.down", file + "output.dense");
    n.norm(engine + "feed_forward.norm", file + "layernorm_after");
  }
  n.norm("encoder.norm", base + "layernorm");
  if (s.pooler) n.linear("pooler", base + "pooler.dense");
  if (s.classes() == 0) return n.all;
  n.linear("classifier", f.distilled ? "cls_classifier" : "classifier");
  if (f.distilled) n.linear("classifier.distilled", "distillation_classifier");
  return n.all;
}

bool reads_patches(const ModelSpec& s, const ImageFamily& family) {
  return s.features.kind == FeatureSpec::Kind::patches && s.features.bias && s.vocab_size == family.tokens;
}

bool is_extra_in_vit(const ModelSpec& s, const std::string& name) {
  return !s.pooler && name.find("pooler.dense.") != std::string::npos;
}

}  // namespace qkv

// "model_type": "qkv": a spec that no other family expresses, written out in full under the engine's names.
#include "qkv/io/family.h"
#include "qkv/models/decoder.h"

namespace qkv {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;  // check_spec() knows the real bounds

constexpr int64_t kVersion = 1;

ModelSpec read_config(const JsonField& c) {
  const JsonField q = c["qkv"];
  const auto version = q["version"].integer(0, kMost);
  check(version == kVersion, "{}: version {} is not supported, expected {}", q.place(), version, kVersion);
  ModelSpec s;
  s.vocab_size = q["vocab_size"].integer(0, kMost);
  s.context = q["context"].integer(0, kMost);
  s.width = q["width"].integer(0, kMost);
  s.layers = q["layers"].integer(0, kMost);
  s.attention.heads = q["heads"].integer(0, kMost);
  s.attention.kv_heads = q["kv_heads"].integer(0, kMost);
  s.attention.d_qk = q["d_qk"].integer(0, kMost);
  s.attention.d_vo = q["d_vo"].integer(0, kMost);
  s.attention.bias = q["attention_bias"].boolean();
  s.attention.scaled = q["attention_scaled"].boolean();
  s.attention.scaled_by_layer = q["attention_scaled_by_layer"].boolean();
  s.attention.dropout = static_cast<float>(q["attention_dropout"].number());
  s.hidden = q["hidden"].integer(0, kMost);
  s.activation = activation_from_name(q["activation"].string());
  s.norm_epsilon = static_cast<float>(q["norm_epsilon"].number());
  s.tied = q["tied"].boolean();
  s.init_std = static_cast<float>(q["init_std"].number());
  s.embedding_dropout = static_cast<float>(q["embedding_dropout"].number());
  s.residual_dropout = static_cast<float>(q["residual_dropout"].number());
  return s;
}

OrderedJson write_config(const ModelSpec& s) {
  return {{"model_type", "qkv"},
          {"qkv",
           {{"version", kVersion},
            {"vocab_size", s.vocab_size},
            {"context", s.context},
            {"width", s.width},
            {"layers", s.layers},
            {"heads", s.attention.heads},
            {"kv_heads", s.attention.kv_heads},
            {"d_qk", s.attention.d_qk},
            {"d_vo", s.attention.d_vo},
            {"attention_bias", s.attention.bias},
            {"attention_scaled", s.attention.scaled},
            {"attention_scaled_by_layer", s.attention.scaled_by_layer},
            {"attention_dropout", decimal(s.attention.dropout)},
            {"hidden", s.hidden},
            {"activation", name_of(s.activation)},
            {"norm_epsilon", decimal(s.norm_epsilon)},
            {"tied", s.tied},
            {"init_std", decimal(s.init_std)},
            {"embedding_dropout", decimal(s.embedding_dropout)},
            {"residual_dropout", decimal(s.residual_dropout)}}}};
}

std::vector<WeightName> weights(const ModelSpec& s) {
  std::vector<WeightName> names;
  const Decoder model(s);
  for (const Parameter& p : model.parameters().all()) names.push_back({p.name, p.name});
  return names;
}

}  // namespace

const Family& native_family() {
  static const Family family = {"qkv",
                                read_config,
                                write_config,
                                [](const ModelSpec&) { return true; },
                                weights,
                                "",
                                [](const ModelSpec&, const std::string&) { return false; }};
  return family;
}

}  // namespace qkv

// "model_type": "qkv": a spec that no other family expresses, written out in full under the engine's names.
#include "qkv/io/family.h"
#include "qkv/models/decoder.h"

namespace qkv {
namespace {

constexpr int64_t kVersion = 1;

ModelSpec read_config(const Json& c, const std::string& where) {
  check(c.contains("qkv") && c.at("qkv").is_object(), "{}: qkv: expected an object", where);
  const Json& q = c.at("qkv");
  const std::string at = where + ": qkv";
  const auto version = json_field<int64_t>(q, "version", at);
  check(version == kVersion, "{}: version {} is not supported, expected {}", at, version, kVersion);
  ModelSpec s;
  s.vocab_size = json_field<int64_t>(q, "vocab_size", at);
  s.context = json_field<int64_t>(q, "context", at);
  s.width = json_field<int64_t>(q, "width", at);
  s.layers = json_field<int64_t>(q, "layers", at);
  s.attention.heads = json_field<int64_t>(q, "heads", at);
  s.attention.kv_heads = json_field<int64_t>(q, "kv_heads", at);
  s.attention.d_qk = json_field<int64_t>(q, "d_qk", at);
  s.attention.d_vo = json_field<int64_t>(q, "d_vo", at);
  s.attention.bias = json_field<bool>(q, "attention_bias", at);
  s.attention.scaled = json_field<bool>(q, "attention_scaled", at);
  s.attention.scaled_by_layer = json_field<bool>(q, "attention_scaled_by_layer", at);
  s.attention.dropout = json_field<float>(q, "attention_dropout", at);
  s.hidden = json_field<int64_t>(q, "hidden", at);
  s.activation = activation_from_name(json_field<std::string>(q, "activation", at));
  s.norm_epsilon = json_field<float>(q, "norm_epsilon", at);
  s.tied = json_field<bool>(q, "tied", at);
  s.init_std = json_field<float>(q, "init_std", at);
  s.embedding_dropout = json_field<float>(q, "embedding_dropout", at);
  s.residual_dropout = json_field<float>(q, "residual_dropout", at);
  return s;
}

Json write_config(const ModelSpec& s) {
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
            {"attention_dropout", s.attention.dropout},
            {"hidden", s.hidden},
            {"activation", name_of(s.activation)},
            {"norm_epsilon", s.norm_epsilon},
            {"tied", s.tied},
            {"init_std", s.init_std},
            {"embedding_dropout", s.embedding_dropout},
            {"residual_dropout", s.residual_dropout}}}};
}

std::vector<WeightName> weights(const ModelSpec& s) {
  std::vector<WeightName> names;
  const Decoder model(s);
  for (const Parameter& p : model.parameters().all()) names.push_back({p.name, p.name});
  return names;
}

}  // namespace

const Family& native_family() {
  static const Family family = {"qkv", read_config, write_config, [](const ModelSpec&) { return true; }, weights, "",
                                [](const ModelSpec&, const std::string&) { return false; }};
  return family;
}

}  // namespace qkv

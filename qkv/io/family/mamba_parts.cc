#include "qkv/io/family/mamba_parts.h"

#include "qkv/base/json_value.h"

namespace qkv {

ModelSpec read_mamba_like(const JsonField& c, bool tied) {
  ModelSpec s;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.width = c["hidden_size"].integer(0, kMost);
  s.layers = c["num_hidden_layers"].integer(0, kMost);
  // No published file has this: their models have no longest text.
  s.context = c.integer_or("max_position_embeddings", 2048, 1, kMost);
  check(read_activation(c, "hidden_act", "silu") == Activation::silu,
        "{}: hidden_act: only silu is supported", c.place());
  s.attention.d_qk = s.attention.d_vo = 1;
  s.hidden = 0;
  s.normalization = Normalization::rms;
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.positions = Positions::none;
  s.tied = c.boolean_or("tie_word_embeddings", tied);
  s.init_std = c.number_or("initializer_range", 0.1F);
  return s;
}

OrderedJson write_mamba_like(const ModelSpec& s, const char* type, const char* architecture) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"vocab_size", s.vocab_size},
          {"hidden_size", s.width},
          {"num_hidden_layers", s.layers},
          {"max_position_embeddings", s.context},
          {"hidden_act", "silu"},
          {"layer_norm_epsilon", decimal(s.norm_epsilon)},
          {"tie_word_embeddings", s.tied},
          {"initializer_range", decimal(s.init_std)},
          {"torch_dtype", "float32"},
          {"use_cache", true}};
}

namespace {

std::vector<WeightName> mamba_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "backbone.embeddings.weight");
  n.all.back().also = "backbone.embedding.weight";
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string e = fmt::format("decoder.block.{}.{}.", l, s.mixer.part()),
                      f = fmt::format("backbone.layers.{}.", l);
    n.bias = false;
    n.norm(e + "norm", f + "norm");
    if (const auto* mamba = s.mixer.get_if<MambaMixer>())
      add_mamba(n, *mamba, e, f + "mixer.");
    else
      add_mamba2(n, *s.mixer.get_if<Mamba2Mixer>(), e, f + "mixer.");
  }
  n.bias = false;
  n.norm("decoder.norm", "backbone.norm_f");
  n.untied(s, "lm_head.weight");
  return n.all;
}

}  // namespace

Family mamba_like(const char* type, const char* language_model, bool (*expresses)(const ModelSpec&),
                  ModelSpec (*read)(const JsonField&), OrderedJson (*write)(const ModelSpec&)) {
  return {type,
          read,
          write,
          expresses,
          mamba_weights,
          "backbone.",
          [](const ModelSpec& s, const std::string& name) { return s.tied && name == "lm_head.weight"; },
          Activation::tanh,
          language_model};
}

}  // namespace qkv

// RWKV-4: Hugging Face's RwkvForCausalLM. Its rescale_every halves numbers for float16; it changes no output.

#include "qkv/base/json_value.h"
#include "qkv/io/family/hybrid_parts.h"

namespace qkv {
namespace {

constexpr int64_t kRescaleEvery = 6;

ModelSpec read_rwkv(const JsonField& c) {
  ModelSpec s;
  s.vocab_size = c["vocab_size"].integer(0, kMost);
  s.context = c.integer_or("context_length", 1024, 1, kMost);
  s.width = c["hidden_size"].integer(0, kMost);
  s.layers = c["num_hidden_layers"].integer(0, kMost);
  const auto size_or = [&](const char* key, int64_t otherwise) {
    const auto field = c.find(key);
    return field && !field->json().is_null() ? field->integer(1, kMost) : otherwise;
  };
  Rwkv4Mixer m;
  m.inner = size_or("attention_hidden_size", s.width);
  s.mixer = m;
  s.hidden = size_or("intermediate_size", 4 * s.width);
  s.channel_mix = ChannelMix::rwkv4;
  s.activation = Activation::relu_squared;
  s.feed_forward_bias = false;
  s.norm_epsilon = c.number_or("layer_norm_epsilon", 1e-5F);
  s.embedding_norm = true;
  s.positions = Positions::none;
  s.attention.d_qk = s.attention.d_vo = 1;
  s.tied = c.boolean_or("tie_word_embeddings", false);
  return s;
}

OrderedJson write_rwkv(const ModelSpec& s) {
  return {{"model_type", "rwkv"},
          {"architectures", {"RwkvForCausalLM"}},
          {"vocab_size", s.vocab_size},
          {"context_length", s.context},
          {"hidden_size", s.width},
          {"num_hidden_layers", s.layers},
          {"attention_hidden_size", s.mixer.get_if<Rwkv4Mixer>()->inner},
          {"intermediate_size", s.hidden},
          {"layer_norm_epsilon", decimal(s.norm_epsilon)},
          {"rescale_every", kRescaleEvery},
          {"tie_word_embeddings", s.tied},
          {"torch_dtype", "float32"},
          {"use_cache", true}};
}

std::vector<WeightName> rwkv_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "rwkv.embeddings.weight");
  n.norm("embedding.norm", "rwkv.blocks.0.pre_ln");
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string e = fmt::format("decoder.block.{}.", l), f = fmt::format("rwkv.blocks.{}.", l);
    const auto mix = [&](const std::string& engine, const std::string& file) {
      n.tensor(engine, file);
      n.all.back().shape = {1, 1, s.width};
    };
    n.bias = true;
    n.norm(e + "rwkv4.norm", f + "ln1");
    n.norm(e + "feed_forward.norm", f + "ln2");
    n.bias = false;
    n.tensor(e + "rwkv4.log_rate", f + "attention.time_decay");
    n.tensor(e + "rwkv4.bonus", f + "attention.time_first");
    for (const auto& [part, name] : {std::pair("k", "key"), {"v", "value"}, {"r", "receptance"}}) {
      mix(fmt::format("{}rwkv4.shift.{}", e, part), fmt::format("{}attention.time_mix_{}", f, name));
      n.linear(fmt::format("{}rwkv4.{}", e, part), fmt::format("{}attention.{}", f, name));
    }
    n.linear(e + "rwkv4.out", f + "attention.output");
    mix(e + "feed_forward.shift.k", f + "feed_forward.time_mix_key");
    mix(e + "feed_forward.shift.r", f + "feed_forward.time_mix_receptance");
    n.linear(e + "feed_forward.up", f + "feed_forward.key");
    n.linear(e + "feed_forward.down", f + "feed_forward.value");
    n.linear(e + "feed_forward.receptance", f + "feed_forward.receptance");
  }
  n.bias = true;
  n.norm("decoder.norm", "rwkv.ln_out");
  n.untied(s, "head.weight");
  return n.all;
}

}  // namespace

const Family& rwkv_family() {
  static const Family family = {
      "rwkv",
      read_rwkv,
      write_rwkv,
      [](const ModelSpec& s) { return is_all<Rwkv4Mixer>(s) && s.embedding_norm; },
      rwkv_weights,
      "rwkv.",
      [](const ModelSpec& s, const std::string& name) { return s.tied && name == "head.weight"; },
      Activation::tanh,
      "RwkvForCausalLM"};
  return family;
}

}  // namespace qkv

// T5Gemma, an encoder-decoder of Gemma 2's blocks: Hugging Face's T5GemmaForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/llama_parts.h"

namespace qkv {
namespace {

constexpr const char* kEncoder = "encoder";  // the kind of its layers, and its part of the config

// One stack's part of the config. The vocabulary of the whole is that of both.
ModelSpec read_stack(const JsonField& c, const char* stack) {
  const JsonField its = c[stack];
  Json json = its.json();
  if (const auto size = c.find("vocab_size")) json["vocab_size"] = size->json();
  const JsonField part(json, its.place());
  expect_one_rotation(part);
  return gemma2_family().read_config(part);
}

ModelSpec read_t5gemma(const JsonField& c) {
  ModelSpec s = read_stack(c, "decoder");
  const ModelSpec e = read_stack(c, kEncoder);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = e.layers;
  s.source_vocab_size = e.vocab_size;  // tables apart, even of one size
  if (e.width != s.width) s.encoder.width = e.width;
  if (e.width != s.width || static_cast<const BlockSpec&>(e) != static_cast<const BlockSpec&>(s)) {
    s.kinds = {{kEncoder, e}};
    s.encoder_layer_kinds = {kEncoder};
  }
  s.tied = c.boolean_or("tie_word_embeddings", true);
  s.embedding_dropout = s.residual_dropout = c.number_or("dropout_rate", 0);
  return s;
}

// Either stack's part of the config.
OrderedJson stack_config(ModelSpec s, int64_t layers, int64_t vocab_size) {
  const BlockSpec block = s.block(0);  // that of all layers
  static_cast<BlockSpec&>(s) = block;
  s.architecture = Architecture::decoder;
  s.layers = layers;
  s.vocab_size = vocab_size;
  OrderedJson c = gemma2_family().write_config(s);
  c["model_type"] = "t5_gemma_module";
  c.erase("architectures");
  return c;
}

OrderedJson write_t5gemma(const ModelSpec& s) {
  OrderedJson decoder = stack_config(s, s.layers, s.vocab_size);
  const ModelSpec e = s.encoder_spec();
  if (e.width != s.width) decoder["cross_attention_hidden_size"] = e.width;
  return {{"model_type", "t5gemma"},
          {"architectures", {"T5GemmaForConditionalGeneration"}},
          {"is_encoder_decoder", true},
          {"vocab_size", s.vocab_size},
          {"dropout_rate", decimal(s.residual_dropout)},
          {"tie_word_embeddings", s.tied},
          {"torch_dtype", "float32"},
          {kEncoder, stack_config(e, s.encoder_layers, s.source_vocab_size)},
          {"decoder", std::move(decoder)}};
}

void add_attention(WeightNames& n, const AttentionSpec& a, const std::string& engine, const std::string& file,
                   bool cross) {
  const int64_t q = a.heads * a.d_qk, k = a.kv_heads * a.d_qk, v = a.kv_heads * a.d_vo;
  n.bias = a.bias;
  if (cross) {
    n.linear(engine + "q", file + "q_proj");
    n.parts(engine + "kv", {file + "k_proj", file + "v_proj"}, {k, v});
  } else {
    n.parts(engine + "qkv", {file + "q_proj", file + "k_proj", file + "v_proj"}, {q, k, v});
  }
  n.bias = a.out_bias;
  n.linear(engine + "out", file + "o_proj");
}

std::vector<WeightName> t5gemma_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "model.decoder.embed_tokens.weight");
  n.tensor("encoder.embedding.token", "model.encoder.embed_tokens.weight");
  const auto norm = [&](const std::string& engine, const std::string& file) {
    n.bias = false;
    n.norm(engine, file);
  };
  const ModelSpec e = s.encoder_spec();
  for (const auto& [stack, spec, layers] :
       {std::tuple("encoder", &e, s.encoder_layers), {"decoder", &s, s.layers}}) {
    for (int64_t l = 0; l < layers; ++l) {
      const BlockSpec& b = spec->block(l);
      const std::string engine = fmt::format("{}.block.{}.", stack, l),
                        file = fmt::format("model.{}.layers.{}.", stack, l);
      const auto norms = [&](const std::string& of, const std::string& in_file) {
        norm(engine + of + ".norm", file + "pre_" + in_file + "_layernorm");
        norm(engine + of + ".branch_norm", file + "post_" + in_file + "_layernorm");
      };
      norms("attention", "self_attn");
      add_attention(n, b.attention, engine + "attention.", file + "self_attn.", false);
      if (spec == &s) {
        norms("cross_attention", "cross_attn");
        add_attention(n, b.attention, engine + "cross_attention.", file + "cross_attn.", true);
      }
      norms("feed_forward", "feedforward");
      n.bias = b.feed_forward_bias;
      n.parts(engine + "feed_forward.up", {file + "mlp.gate_proj", file + "mlp.up_proj"},
              {b.hidden, b.hidden});
      n.linear(engine + "feed_forward.down", file + "mlp.down_proj");
    }
    norm(fmt::format("{}.norm", stack), fmt::format("model.{}.norm", stack));
  }
  n.untied(s, "lm_head.out_proj.weight");
  return n.all;
}

}  // namespace

const Family& t5gemma_family() {
  static const Family family = [] {
    Family f = {"t5gemma",
                read_t5gemma,
                write_t5gemma,
                [](const ModelSpec& s) {
                  return s.architecture == Architecture::encoder_decoder &&
                         s.positions == Positions::rotary && s.normalization == Normalization::rms_plus_one &&
                         s.norm_placement == NormPlacement::sandwich && s.source_vocab_size > 0;
                },
                t5gemma_weights,
                "model.",
                [](const ModelSpec& s, const std::string& name) {
                  return name.ends_with(".rotary_emb.inv_freq") ||
                         (s.tied && name == "lm_head.out_proj.weight");
                }};
    f.fills_with_ends = true;
    return f;
  }();
  return family;
}

}  // namespace qkv

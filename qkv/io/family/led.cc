// LED, an encoder-decoder whose encoder is a Longformer's: Hugging Face's LEDForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bart_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {
namespace {

constexpr const char *kEncoder = "encoder", *kContext = "max_decoder_position_embeddings",
                     *kSourceContext = "max_encoder_position_embeddings";

ModelSpec read_config(const JsonField& c) {
  ModelSpec s = read_bart_like(c, kContext);
  s.stacks_apart = s.embedding_norm = true;
  BlockSpec block = s.encoder_spec();
  block.attention.patterns = read_two_sided_windows(c, s.encoder_layers, 0);
  block.attention.global_projections = true;
  s.encoder = {};
  if (const int64_t context = c[kSourceContext].integer(0, kMost); context != s.context)
    s.encoder.context = context;
  s.kinds = {{kEncoder, block}};
  s.encoder_layer_kinds = {kEncoder};
  return s;
}

OrderedJson write_config(const ModelSpec& s) {
  OrderedJson c = write_bart_like(s, "led", "LEDForConditionalGeneration");
  const ModelSpec e = s.encoder_spec();
  c.erase("max_position_embeddings");
  c[kContext] = s.context;
  c[kSourceContext] = e.context;
  c["attention_window"] = two_sided_windows_json(e.block(0).attention.patterns, s.encoder_layers);
  return c;
}

std::vector<WeightName> weights(const ModelSpec& s) {
  WeightNames n;
  const int64_t w = s.width;
  n.tensor("embedding.token", "led.shared.weight");
  for (const std::string stack : {"encoder", "decoder"}) {
    const bool decoder = stack == "decoder";
    n.tensor(stack + ".embedding.position", fmt::format("led.{}.embed_positions.weight", stack));
    n.norm(stack + ".embedding.norm", fmt::format("led.{}.layernorm_embedding", stack));
    for (int64_t l = 0; l < (decoder ? s.layers : s.encoder_layers); ++l) {
      const std::string engine = fmt::format("{}.block.{}.", stack, l),
                        file = fmt::format("led.{}.layers.{}.", stack, l);
      const std::string self = file + "self_attn." + (decoder ? "" : "longformer_self_attn."),
                        cross = file + "encoder_attn.";
      if (decoder) {
        n.parts(engine + "attention.qkv", {self + "q_proj", self + "k_proj", self + "v_proj"}, {w, w, w});
        n.linear(engine + "attention.out", self + "out_proj");
        n.linear(engine + "cross_attention.q", cross + "q_proj");
        n.parts(engine + "cross_attention.kv", {cross + "k_proj", cross + "v_proj"}, {w, w});
        n.linear(engine + "cross_attention.out", cross + "out_proj");
        n.norm(engine + "cross_attention.norm", file + "encoder_attn_layer_norm");
      } else {
        n.parts(engine + "attention.qkv", {self + "query", self + "key", self + "value"}, {w, w, w});
        n.linear(engine + "attention.global.q", self + "query_global");
        n.parts(engine + "attention.global.kv", {self + "key_global", self + "value_global"}, {w, w});
        n.linear(engine + "attention.out", file + "self_attn.output");
      }
      n.norm(engine + "attention.norm", file + "self_attn_layer_norm");
      n.linear(engine + "feed_forward.up", file + "fc1");
      n.linear(engine + "feed_forward.down", file + "fc2");
      n.norm(engine + "feed_forward.norm", file + "final_layer_norm");
    }
  }
  add_bart_unembedding(s, n);
  return n.all;
}

}  // namespace

const Family& led_family() {
  static const Family family = [] {
    Family f = {"led",
                read_config,
                write_config,
                [](const ModelSpec& s) {
                  return is_bart_like(s) && s.positions == Positions::learned && s.stacks_apart &&
                         s.embedding_norm && s.encoder_layer_kinds == std::vector<std::string>{kEncoder} &&
                         s.encoder_spec().block(0).attention.global_projections &&
                         !s.encoder_spec().block(0).attention.patterns.empty();
                },
                weights,
                "led.",
                is_extra_in_bart};
    f.fills_with_ends = true;
    return f;
  }();
  return family;
}

}  // namespace qkv

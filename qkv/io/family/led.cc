// LED, an encoder-decoder whose encoder is a Longformer's: Hugging Face's LEDForConditionalGeneration.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bart_parts.h"
#include "qkv/io/family/window_parts.h"

namespace qkv {
namespace {

constexpr const char *kLedEncoder = "encoder", *kContext = "max_decoder_position_embeddings",
                     *kSourceContext = "max_encoder_position_embeddings";

ModelSpec read_led(const JsonField& c) {
  ModelSpec s = read_bart_like(c, kContext);
  s.stacks_apart = s.embedding_norm = true;
  BlockSpec block = s.encoder_spec();
  block.attention.patterns = read_two_sided_windows(c, s.encoder_layers, 0);
  block.attention.global_projections = true;
  s.encoder = {};
  if (const int64_t context = c[kSourceContext].integer(0, kMost); context != s.context)
    s.encoder.context = context;
  s.kinds = {{kLedEncoder, block}};
  s.encoder_layer_kinds = {kLedEncoder};
  return s;
}

OrderedJson write_led(const ModelSpec& s) {
  OrderedJson c = write_bart_like(s, "led", "LEDForConditionalGeneration");
  const ModelSpec e = s.encoder_spec();
  c.erase("max_position_embeddings");
  c[kContext] = s.context;
  c[kSourceContext] = e.context;
  c["attention_window"] = two_sided_windows_json(e.block(0).attention.patterns, s.encoder_layers);
  return c;
}

std::vector<WeightName> led_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "led.shared.weight");
  for (const std::string stack : {"encoder", "decoder"}) {
    n.tensor(stack + ".embedding.position", fmt::format("led.{}.embed_positions.weight", stack));
    n.norm(stack + ".embedding.norm", fmt::format("led.{}.layernorm_embedding", stack));
  }
  add_bart_blocks(s, n,
                  {.base = "led",
                   .query = "self_attn.longformer_self_attn.query",
                   .key = "self_attn.longformer_self_attn.key",
                   .value = "self_attn.longformer_self_attn.value",
                   .out = "self_attn.output"});
  for (int64_t l = 0; l < s.encoder_layers; ++l)
    add_global_projections(n, s.width, fmt::format("encoder.block.{}.", l),
                           fmt::format("led.encoder.layers.{}.self_attn.longformer_self_attn.", l));
  add_bart_unembedding(s, n);
  return n.all;
}

}  // namespace

const Family& led_family() {
  static const Family family = [] {
    Family f = {"led",
                read_led,
                write_led,
                [](const ModelSpec& s) {
                  return is_bart_like(s) && s.positions == Positions::learned && s.stacks_apart &&
                         s.embedding_norm && s.encoder_layer_kinds == std::vector<std::string>{kLedEncoder} &&
                         s.encoder_spec().block(0).attention.global_projections &&
                         !s.encoder_spec().block(0).attention.patterns.empty();
                },
                led_weights,
                "led.",
                is_extra_in_bart};
    f.fills_with_ends = true;
    return f;
  }();
  return family;
}

}  // namespace qkv

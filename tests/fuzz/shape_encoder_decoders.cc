// Random encoder-decoders: T5, BART and their relatives.
#include "tests/fuzz/shape_parts.h"
#include "tests/fuzz/shape_tables.h"

namespace qkv::testing {

std::span<const ShapeFamily> encoder_decoder_shapes() {
  static const ShapeFamily families[] = {
      {"umt5",
       [](Draw& d) {
         ModelSpec s = t5(d);
         s.gated = d.chance(0.5);
         s.relative_by_layer = true;
         return s;
       }},
      {"t5gemma",
       [](Draw& d) {
         ModelSpec s = llama(d);
         add_encoder(s, d);
         s.source_vocab_size = s.vocab_size;
         s.normalization = Normalization::rms_plus_one;
         s.norm_placement = NormPlacement::sandwich;
         s.embedding_scaled = true;
         s.activation = Activation::gelu_tanh;
         s.attention.cap = s.logit_cap = 5;
         s.attention.patterns = {{.window = d.between(1, 9)}, {}};
         const ModelSpec e = llama(d);
         BlockSpec block = s;
         block.attention.heads = e.attention.heads;
         block.attention.kv_heads = e.attention.kv_heads;
         block.attention.d_qk = block.attention.d_vo = block.attention.rotary.width = e.attention.d_qk;
         block.hidden = e.hidden;
         if (e.width != s.width) s.encoder.width = e.width;
         if (e.width == s.width && block == static_cast<const BlockSpec&>(s)) return s;
         s.kinds = {{"encoder", block}};
         s.encoder_layer_kinds = {"encoder"};
         return s;
       }},
      {"t5",
       [](Draw& d) {
         ModelSpec s = t5(d);
         s.gated = d.chance(0.5);
         if (d.chance(0.5)) s.activation = Activation::gelu_tanh;
         return s;
       }},
      {"switch_transformers",
       [](Draw& d) {
         ModelSpec s = t5(d);
         s.experts = experts(d);
         s.experts.chosen = 1;
         s.experts.hidden = s.hidden;
         s.experts.renormalized = false;
         s.experts.first = d.between(0, s.layers - 1);
         s.experts.every = d.between(1, 2);
         s.experts.capacity = d.between(150, 300);  // more is refused
         if (d.chance(0.3)) {
           s.encoder.expert_every = d.between(1, 2);
           s.encoder.expert_first = d.between(0, s.encoder_layers - 1);
         }
         return s;
       }},
      {"bart", [](Draw& d) { return bart(d); }},
      {"led",
       [](Draw& d) {
         ModelSpec s = bart(d);
         BlockSpec e = s.encoder_spec();
         s.encoder = {};
         e.attention.patterns = {{.window = d.between(2, 6)}};
         if (s.encoder_layers > 1 && d.chance(0.5))
           e.attention.patterns.push_back({.window = d.between(2, 6)});
         e.attention.global_projections = true;
         s.kinds = {{"encoder", e}};
         s.encoder_layer_kinds = {"encoder"};
         if (d.chance(0.5)) s.encoder.context = s.context + d.between(1, 9);
         return s;
       }},
      {"mbart",
       [](Draw& d) {
         ModelSpec s = bart(d);
         s.norm_placement = NormPlacement::pre;
         s.tied = d.chance(0.7);
         return s;
       }},
      {"marian",
       [](Draw& d) {
         ModelSpec s = bart(d);
         s.positions = Positions::sinusoidal_halves;
         s.stacks_apart = s.embedding_norm = false;
         s.activation = Activation::silu;
         return s;
       }},
      {"pegasus",
       [](Draw& d) {
         ModelSpec s = bart(d);
         s.norm_placement = NormPlacement::pre;
         s.positions = Positions::sinusoidal_halves;
         s.stacks_apart = s.embedding_norm = false;
         s.activation = Activation::relu;
         return s;
       }},
      {"m2m_100",
       [](Draw& d) {
         ModelSpec s = bart(d);
         s.norm_placement = NormPlacement::pre;
         s.positions = Positions::sinusoidal_closed;
         s.first_position = d.chance(0.5) ? 0 : d.between(1, 6);
         s.stacks_apart = s.embedding_norm = s.unembedding_bias = false;
         return s;
       }},
      {"whisper",
       [](Draw& d) {
         ModelSpec s = bart(d);
         s.norm_placement = NormPlacement::pre;
         s.embedding_norm = s.embedding_scaled = s.unembedding_bias = false;
         s.encoder.context = d.between(1, 12);
         s.features = {.kind = FeatureSpec::Kind::frames, .channels = d.between(1, 7)};
         return s;
       }},
  };
  return families;
}

}  // namespace qkv::testing

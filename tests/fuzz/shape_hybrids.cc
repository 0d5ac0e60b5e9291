// Random decoders whose layers are not all attention: states, convolutions, and hybrids of them.
#include "tests/fuzz/shape_parts.h"
#include "tests/fuzz/shape_tables.h"

namespace qkv::testing {
namespace {

MambaMixer mamba(Draw& d, int64_t inner) {
  MambaMixer m;
  m.inner = inner, m.state = d.between(1, 7), m.rank = d.between(1, 5), m.kernel = d.between(2, 5);
  m.bias = d.chance(0.5), m.convolution_bias = d.chance(0.5);
  return m;
}

// Heads as wide together as `expand` times the model.
Mamba2Mixer mamba2(Draw& d, int64_t width, int64_t expand) {
  Mamba2Mixer m;
  m.groups = d.between(1, 3);
  m.heads = m.groups * d.between(1, 3);
  while (expand * width % m.heads != 0) m.groups = m.heads = 1;
  m.head_width = expand * width / m.heads;
  m.state = d.between(1, 20), m.kernel = d.between(2, 5);
  m.bias = d.chance(0.5), m.convolution_bias = d.chance(0.5);
  return m;
}

GatedDeltaMixer gated_delta(Draw& d) {
  GatedDeltaMixer m;
  m.key_heads = d.between(1, 3);
  m.heads = m.key_heads * d.between(1, 3);
  m.d_k = d.between(1, 19), m.d_v = d.between(1, 19), m.kernel = d.between(2, 5);
  return m;
}

// Layers of this mixer; each second attends.
void give_layers(ModelSpec& s, Draw& d, const char* name, const MixerSpec& mixer) {
  BlockSpec other = s;
  other.mixer = mixer;
  other.positions = Positions::none;
  other.attention = {};
  other.attention.d_qk = other.attention.d_vo = 1;
  s.layers = d.between(2, 3);
  s.kinds = {{name, other}};
  s.layer_kinds = {name, kDefaultKind};
}

// Nothing but the mixer in each layer.
ModelSpec alone(Draw& d) {
  ModelSpec s = llama(d);
  s.hidden = 0;
  s.gated = false;
  s.activation = Activation::gelu_tanh;
  s.feed_forward_bias = true;
  s.norm_epsilon = 1e-5F;
  s.positions = Positions::none;
  s.attention = {};
  s.attention.d_qk = s.attention.d_vo = 1;
  s.tied = d.chance(0.5);
  s.context = 2048;
  return s;
}

ModelSpec qwen3_next(Draw& d) {
  ModelSpec s = llama(d);
  s.normalization = Normalization::rms_plus_one;
  s.attention.query_key_norm = QueryKeyNorm::heads_plus_one;
  s.attention.gated = true;
  s.attention.bias = s.attention.out_bias = d.chance(0.3);
  turn(s, d, false);
  return s;
}

}  // namespace

std::span<const ShapeFamily> hybrid_shapes() {
  static const ShapeFamily families[] = {
      {"mamba",
       [](Draw& d) {
         ModelSpec s = alone(d);
         s.mixer = mamba(d, s.width * d.between(1, 3));
         return s;
       }},
      {"mamba2",
       [](Draw& d) {
         ModelSpec s = alone(d);
         Mamba2Mixer m = mamba2(d, s.width, d.between(1, 3));
         if (d.chance(0.5)) m.step_low = 0.25F, m.step_high = 1.5F;
         s.mixer = m;
         return s;
       }},
      {"rwkv",
       [](Draw& d) {
         ModelSpec s = alone(d);
         Rwkv4Mixer m;
         m.inner = d.between(1, 40);
         s.mixer = m;
         s.hidden = d.between(1, 40);
         s.channel_mix = ChannelMix::rwkv4;
         s.activation = Activation::relu_squared;
         s.feed_forward_bias = false;
         s.embedding_norm = true;
         s.normalization = Normalization::layer;
         return s;
       }},
      {"jamba",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.d_qk = s.attention.d_vo = s.width / s.attention.heads;
         s.width = s.attention.heads * s.attention.d_qk;
         s.positions = Positions::none;
         s.attention.rotary = {};
         MambaMixer m = mamba(d, 2 * s.width);
         m.norms = true;
         if (d.chance(0.6)) {
           s.experts = {.count = d.between(2, 5), .chosen = d.between(1, 2), .hidden = s.hidden};
           s.experts.every = d.between(1, 2), s.experts.first = s.experts.every - 1;
           s.experts.renormalized = false;
         }
         give_layers(s, d, "mamba", m);
         return s;
       }},
      {"granitemoehybrid",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.attention.scale = 0.25F;
         s.embedding_multiplier = 3;
         s.residual_multiplier = 0.5F;
         s.logit_multiplier = 0.5F;
         if (d.chance(0.5)) s.positions = Positions::none, s.attention.rotary = {};
         if (d.chance(0.6)) {
           s.experts = {.count = d.between(2, 5), .chosen = d.between(1, 2), .hidden = s.hidden};
           s.experts.shared_hidden = d.between(1, 9);
         }
         give_layers(s, d, "mamba", mamba2(d, s.width, 2));
         return s;
       }},
      {"qwen3_next",
       [](Draw& d) {
         ModelSpec s = qwen3_next(d);
         if (d.chance(0.6)) {
           s.experts = {.count = d.between(2, 5), .chosen = d.between(1, 2), .hidden = d.between(1, 9)};
           s.experts.shared_hidden = d.between(1, 9);
           s.experts.shared_gated = true;
         }
         give_layers(s, d, "linear", gated_delta(d));
         return s;
       }},
      {"qwen3_5_text",
       [](Draw& d) {
         ModelSpec s = qwen3_next(d);
         s.tied = d.chance(0.5);
         give_layers(s, d, "linear", gated_delta(d));
         return s;
       }},
      {"lfm2",
       [](Draw& d) {
         ModelSpec s = llama(d);
         s.width = s.attention.heads * s.attention.d_qk;
         s.attention.query_key_norm = QueryKeyNorm::heads;
         s.tied = d.chance(0.5);
         ConvolutionMixer m;
         m.kernel = d.between(2, 5), m.bias = d.chance(0.5);
         give_layers(s, d, "convolution", m);
         return s;
       }},
  };
  return families;
}

}  // namespace qkv::testing

// Models of states and hybrids, and the family that describes each.
#include "tests/unit/io/family_cases.h"

namespace qkv {
namespace {

// The first of two layers has this mixer, the second attends.
void give_first(ModelSpec& s, const char* name, const MixerSpec& mixer) {
  BlockSpec other = s;
  other.mixer = mixer;
  other.positions = Positions::none;
  other.attention = {};
  other.attention.d_qk = other.attention.d_vo = 1;
  s.layers = 2;
  s.kinds = {{name, other}};
  s.layer_kinds = {name, kDefaultKind};
}

// Layers that are one mixer each.
void leave_alone(ModelSpec& s) {
  const ModelSpec usual;
  static_cast<BlockSpec&>(s) = usual;
  s.attention.d_qk = s.attention.d_vo = 1;
  s.normalization = Normalization::rms;
  s.positions = Positions::none;
  s.context = 2048;
}

void qwen3_next(ModelSpec& s) {
  s.attention.gated = true;
  s.attention.query_key_norm = QueryKeyNorm::heads_plus_one;
  s.normalization = Normalization::rms_plus_one;
  s.attention.rotary.width = 2;
}

GatedDeltaMixer gated_delta() {
  GatedDeltaMixer m;
  m.heads = 6, m.key_heads = 2, m.d_k = 3, m.d_v = 5, m.kernel = 3;
  return m;
}

Mamba2Mixer mamba2(int64_t inner) {
  Mamba2Mixer m;
  m.heads = 2, m.head_width = inner / 2, m.state = 3, m.groups = 2, m.kernel = 3;
  return m;
}

}  // namespace

std::span<const FamilyCase> hybrid_family_cases() {
  static const FamilyCase cases[] = {
      {"mamba",
       [](ModelSpec& s) {
         leave_alone(s);
         MambaMixer m;
         m.inner = 3 * s.width, m.state = 3, m.rank = 2, m.kernel = 5, m.bias = true;
         s.mixer = m;
       }},
      {"mamba2",
       [](ModelSpec& s) {
         leave_alone(s);
         Mamba2Mixer m = mamba2(2 * s.width);
         m.step_low = 0.5F, m.step_high = 4, m.convolution_bias = false;
         s.mixer = m;
       }},
      {"rwkv",
       [](ModelSpec& s) {
         leave_alone(s);
         Rwkv4Mixer m;
         m.inner = s.width + 3;
         s.mixer = m;
         s.hidden = 11;
         s.channel_mix = ChannelMix::rwkv4;
         s.activation = Activation::relu_squared;
         s.feed_forward_bias = false;
         s.gated = false;
         s.embedding_norm = true;
         s.normalization = Normalization::layer;
         s.norm_epsilon = 1e-5F;
       }},
      {"jamba",
       [](ModelSpec& s) {
         s.positions = Positions::none;
         s.attention.rotary = {};
         s.attention.d_qk = s.attention.d_vo = s.width / s.attention.heads;
         s.experts = {.count = 5, .chosen = 3, .hidden = s.hidden, .first = 1, .every = 2};
         s.experts.renormalized = false;
         MambaMixer m;
         m.inner = 2 * s.width, m.state = 3, m.rank = 2, m.norms = true;
         give_first(s, "mamba", m);
       }},
      {"granitemoehybrid",
       [](ModelSpec& s) {
         s.attention.scale = 0.25F;
         s.residual_multiplier = 0.5F;
         s.experts = {.count = 5, .chosen = 3, .hidden = s.hidden, .shared_hidden = 7, .balance = 0.5F};
         give_first(s, "mamba", mamba2(2 * s.width));
       }},
      {"granitemoehybrid",
       [](ModelSpec& s) {
         s.attention.scale = 0.25F;
         s.positions = Positions::none;
         s.attention.rotary = {};
         give_first(s, "mamba", mamba2(2 * s.width));
       }},
      {"qwen3_next",
       [](ModelSpec& s) {
         qwen3_next(s);
         s.experts = {.count = 5, .chosen = 3, .hidden = 7, .shared_hidden = 3, .shared_gated = true};
         give_first(s, "linear", gated_delta());
       }},
      {"qwen3_5_text",
       [](ModelSpec& s) {
         qwen3_next(s);
         s.family = "qwen3_5_text";
         give_first(s, "linear", gated_delta());
       }},
      {"lfm2",
       [](ModelSpec& s) {
         s.attention.query_key_norm = QueryKeyNorm::heads;
         s.attention.d_qk = s.attention.d_vo = s.attention.rotary.width = s.width / s.attention.heads;
         s.norm_epsilon = 1e-5F;
         ConvolutionMixer m;
         m.kernel = 4, m.bias = true;
         give_first(s, "convolution", m);
       }},
  };
  return cases;
}

}  // namespace qkv

#include "tests/formal/varied_mixer.h"

#include <numeric>

#include "qkv/nn/random_vectors.h"

namespace qkv {
namespace {

// A convolution, and states behind it.
void draw_state_mixer(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  formal::StateShape& f = h.state;
  f.K = between(u, 2, 5);
  f.key_heads = between(u, 1, 2);
  f.heads = f.key_heads * between(u, 1, 2);
  f.d_k = between(u, 1, 5);
  f.d_v = between(u, 1, 5);
  f.rank = between(u, 1, 4);
  f.bias = h.mixer != formal::Mixer::gated_delta && u() < 0.5;
  f.convolution_bias = h.mixer != formal::Mixer::gated_delta && u() < 0.5;
  if (h.mixer == formal::Mixer::gated_delta) {
    GatedDeltaMixer m;
    m.heads = f.heads, m.key_heads = f.key_heads, m.d_k = f.d_k, m.d_v = f.d_v, m.kernel = f.K;
    s.mixer = m;
  } else if (h.mixer == formal::Mixer::Mamba) {
    f.heads = f.key_heads = 1;
    f.norms = u() < 0.5;
    MambaMixer m;
    m.inner = f.d_v, m.state = f.d_k, m.rank = f.rank, m.kernel = f.K, m.norms = f.norms;
    m.bias = f.bias, m.convolution_bias = f.convolution_bias;
    s.mixer = m;
  } else if (h.mixer == formal::Mixer::Mamba_2) {
    Mamba2Mixer m;
    m.heads = f.heads, m.head_width = f.d_v, m.state = f.d_k, m.groups = f.key_heads, m.kernel = f.K;
    m.bias = f.bias, m.convolution_bias = f.convolution_bias;
    if (u() < 0.5) f.low = m.step_low = 0.25F, f.high = m.step_high = 1;
    s.mixer = m;
  } else {
    f.convolution_bias = f.bias;
    ConvolutionMixer m;
    m.kernel = f.K, m.bias = f.bias;
    s.mixer = m;
  }
}

// RWKV's time mixing.
void draw_rwkv(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  formal::StateShape& f = h.state;
  if (h.mixer == formal::Mixer::RWKV_4) {
    f.d_v = between(u, 1, 9);
    Rwkv4Mixer m;
    m.inner = f.d_v;
    s.mixer = m;
    return;
  }
  do f.heads = between(u, 1, static_cast<int>(s.width) / 2);
  while (s.width % f.heads != 0);
  for (formal::Index* rank : {&f.rank, &f.rate_rank, &f.value_rank, &f.gate_rank}) *rank = between(u, 1, 5);
  Rwkv7Mixer m;
  m.heads = f.heads;
  m.decay_rank = f.rank, m.rate_rank = f.rate_rank, m.value_rank = f.value_rank, m.gate_rank = f.gate_rank;
  s.mixer = m;
}

// Vectors as f32 has them.
void draw_random_features(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  formal::StateShape& f = h.state;
  do f.heads = between(u, 1, static_cast<int>(s.width));
  while (s.width % f.heads != 0);
  const bool fourier = u() < 0.5;
  RandomFeaturesMixer m;
  m.heads = f.heads;
  m.count = fourier ? between(u, 30, 40) : between(u, 1, 6);
  m.map = fourier ? RandomMap::fourier : RandomMap::positive;
  m.gated = f.gated = s.architecture == Architecture::decoder && u() < 0.5;
  m.orthogonal = u() < 0.5;
  m.unit = f.unit = fourier && !m.gated && u() < 0.5;
  if (!fourier && s.architecture == Architecture::encoder && u() < 0.5)
    f.epsilon = double{m.epsilon = static_cast<float>(u() * 1e-2)};
  f.map = fourier ? formal::RandomMap::Fourier : formal::RandomMap::positive;
  f.vectors.resize(m.count, s.width / f.heads);
  const std::vector<float> drawn =
      random_vectors(m.count, f.vectors.cols(), m.orthogonal, {static_cast<uint64_t>(1e6 * u()), 0, 0});
  for (formal::Index i = 0; i < f.vectors.size(); ++i)
    f.vectors(i / f.vectors.cols(), i % f.vectors.cols()) = double{drawn[static_cast<size_t>(i)]};
  s.mixer = m;
}

void draw_attention_free(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  formal::StateShape& f = h.state;
  AttentionFreeMixer m;
  const int form = between(u, 0, 3);
  m.form = static_cast<AftForm>(form);
  f.aft = static_cast<formal::AFT>(form);
  m.window = f.window = between(u, 1, 5);
  if (m.by_position() && u() < 0.5) m.rank = f.aft_rank = between(u, 1, 3);
  if (m.form == AftForm::conv) do
      m.heads = f.heads = between(u, 1, static_cast<int>(s.width));
    while (s.width % m.heads != 0);
  s.mixer = m;
}

}  // namespace

void draw_mixer(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  const AttentionSpec& a = s.attention;
  const bool decoder = s.architecture == Architecture::decoder;
  if (u() < (decoder ? 0.2 : 0.5) || (is_of_blocks(s.positions) && s.positions != Positions::none) ||
      a.relative.on() || s.mixer != MixerSpec() || a.global_projections)
    return;
  const formal::Mixer mixers[] = {formal::Mixer::linear_attention,
                                  formal::Mixer::random_features,
                                  formal::Mixer::AFT,
                                  formal::Mixer::LSTM,
                                  formal::Mixer::GRU,
                                  formal::Mixer::average,
                                  formal::Mixer::delta_rule,
                                  formal::Mixer::gated_delta,
                                  formal::Mixer::Mamba,
                                  formal::Mixer::Mamba_2,
                                  formal::Mixer::convolution,
                                  formal::Mixer::RWKV_4,
                                  formal::Mixer::RWKV_7};
  const formal::Mixer which = mixers[between(u, 0, decoder ? 12 : 4)];
  const bool fast = which == formal::Mixer::linear_attention || which == formal::Mixer::delta_rule;
  if (which == formal::Mixer::random_features) {
    if (s.encoder.width > 0) return;
    h.mixer = which;
    draw_random_features(u, s, h);
    return;
  }
  if (which == formal::Mixer::AFT) {
    if (s.encoder.width > 0) return;
    h.mixer = which;
    draw_attention_free(u, s, h);
    return;
  }
  if (!decoder && !fast && (s.width % 2 != 0 || s.encoder_spec().width % 2 != 0)) return;
  if (which == formal::Mixer::RWKV_7 && (s.layer_groups > 0 || s.width < 2)) return;
  h.mixer = which;
  if (which == formal::Mixer::LSTM) s.mixer = LstmMixer();
  if (which == formal::Mixer::GRU) s.mixer = GruMixer();
  if (which == formal::Mixer::average) s.mixer = AverageMixer();
  if (which >= formal::Mixer::RWKV_4)
    draw_rwkv(u, s, h);
  else if (which >= formal::Mixer::gated_delta)
    draw_state_mixer(u, s, h);
  if (!fast) return;
  const int64_t widths = std::gcd(s.width, s.encoder_spec().width);
  do h.H_fast = between(u, 1, static_cast<int>(widths));
  while (widths % h.H_fast != 0);
  const int features = between(u, 0, 5);
  h.features = static_cast<formal::FeatureMap>(features);
  const auto map = static_cast<FeatureMap>(features);
  if (which == formal::Mixer::delta_rule) {
    DeltaRuleMixer m;
    m.heads = h.H_fast, m.features = map;
    s.mixer = m;
    return;
  }
  LinearAttentionMixer m;
  m.heads = h.H_fast, m.features = map;
  m.normalised = h.normalised = (map == FeatureMap::elu || map == FeatureMap::shares) && u() < 0.7;
  s.mixer = m;
}

void draw_channel_mix(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  if (u() < 0.7 || s.architecture != Architecture::decoder || s.gated || s.experts.count > 0 || s.hidden == 0)
    return;
  const bool four = u() < 0.5;
  s.channel_mix = four ? ChannelMix::rwkv4 : ChannelMix::rwkv7;
  h.channel_mix = four ? formal::ChannelMix::RWKV_4 : formal::ChannelMix::RWKV_7;
}

}  // namespace qkv

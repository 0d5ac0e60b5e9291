#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/config/config.h"
#include "tests/formal/varied_case.h"
#include "tests/formal/varied_mixer.h"
#include "tests/unit/scratch_dir.h"

namespace qkv {
namespace {

template <typename E>
E one_of(Uniform& u, std::initializer_list<E> all) {
  return all.begin()[between(u, 0, static_cast<int>(all.size()) - 1)];
}

bool is_sinusoidal(Positions p) {
  return p == Positions::sinusoidal || p == Positions::sinusoidal_paper ||
         p == Positions::sinusoidal_halves || p == Positions::sinusoidal_closed || p == Positions::fourier;
}

// Sinusoids in the place of learned positions, T5's buckets of toeplitz ones, MPT's slopes of ALiBi's.
void draw_other_positions(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  if (s.positions == Positions::learned && s.axial_width == 0 && u() < 0.6) {
    s.positions =
        s.grid > 0
            ? Positions::sinusoidal
            : one_of(u, {Positions::sinusoidal, Positions::sinusoidal_paper, Positions::sinusoidal_halves,
                         Positions::sinusoidal_closed, Positions::sinusoidal_closed, Positions::fourier});
    h.position_vectors = s.positions == Positions::sinusoidal          ? formal::PositionVectors::sinusoidal
                         : s.positions == Positions::sinusoidal_paper  ? formal::PositionVectors::section_5
                         : s.positions == Positions::sinusoidal_halves ? formal::PositionVectors::halves
                         : s.positions == Positions::fourier           ? formal::PositionVectors::Fourier
                                                                       : formal::PositionVectors::closed;
    if (s.positions == Positions::sinusoidal_closed) {
      h.first_position = 2;
      if (u() < 0.5) s.first_position = h.first_position = between(u, 1, 5);
    }
    if (s.positions != Positions::sinusoidal_paper && s.positions != Positions::fourier && u() < 0.3)
      s.position_base = h.position_base = one_of(u, {50, 2000, 100000});
    s.width += (4 - s.width % 4) % 4;
  }
  if (s.positions == Positions::toeplitz && u() < 0.5) {
    s.positions = Positions::relative;
    s.relative_buckets = h.T5_buckets = between(u, 4, 10);
    // Primes: no distance falls on the border of two buckets, where f32 would decide.
    s.relative_distance = h.distances = one_of(u, {7, 11, 13, 17, 19});
  }
  if (s.positions == Positions::alibi && u() < 0.5) {
    s.positions = Positions::alibi_evens_first;
    h.alibi = formal::Alibi::evens_first;
  }
  if (s.architecture == Architecture::encoder &&
      s.attention.relative.kind == RelativeAttention::transformer_xl && u() < 0.5)
    s.attention.relative.segments = h.by_text = true;
}

// Parts of patterns that only some have.
void draw_other_patterns(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  const bool encoder = s.architecture == Architecture::encoder;
  AttentionSpec& a = s.attention;
  for (size_t i = 0; i < a.patterns.size(); ++i) {
    Pattern& p = a.patterns[i];
    formal::SparsePattern& of = h.patterns[i];
    if (p.block > 0 && u() < 0.4) p.ends = of.ends = true;
    if (p.block > 0 && u() < 0.4) {
      p.random = between(u, 1, 2);
      // The draw itself is the engine's choice; the specification says what comes of it.
      of.drawn = [p](formal::Index q, formal::Index k, formal::Index blocks) {
        for (int64_t r = 0; r < p.random; ++r)
          if (p.drawn(q - 1, r, blocks * p.block, blocks == 0) == k - 1) return true;
        return false;
      };
    }
    if (encoder && p.any() && u() < 0.2) p.beyond = of.beyond = between(u, 1, 6);
    if (encoder && p.ends && u() < 0.5) p.first_block = of.first_block = between(u, 2, 3);
  }
  if (encoder && !is_of_blocks(s.positions) && !a.relative.on() && a.head_sizes.empty() &&
      a.shared_query_key.empty() && u() < 0.7) {
    if (a.patterns.empty()) a.patterns.emplace_back(), h.patterns.emplace_back();
    a.global_projections = h.global_projections = true;
    a.patterns[0].global = h.patterns[0].global = between(u, 1, 2);
    a.cap = a.clip = 0, h.score_cap = h.clip = 0;
    a.sinks = h.sinks = false;
    a.query_key_norm = QueryKeyNorm::none, h.query_key_norm = formal::QueryKeyNorm::none;
  }
}

// Embeddings of another width, their norm and their texts.
void draw_embedding(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  if (u() < 0.25) {
    s.embedding_width = h.d_embedding =
        h.position_vectors == formal::PositionVectors::learned ? between(u, 5, 9) : 4 * between(u, 2, 3);
    s.embedding_projected_last = h.projected_last = s.axial_width == 0 && u() < 0.5;
  }
  if (u() < 0.3) s.embedding_norm = h.embedding_norm = true;
  if (u() < 0.4) s.segments = h.texts = between(u, 1, 3);
  if (u() < 0.2) s.embedding_scaled = true;
}

// A head before the unembedding, and what else is behind the last layer.
void draw_unembedding(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  const int64_t token_width = s.embedding_width > 0 ? s.embedding_width : s.width;
  h.head = u() < (s.architecture == Architecture::encoder ? 0.5 : 0.15);
  if (h.head) {
    s.head_width = s.tied ? token_width : between(u, 5, 9);
    h.head_activation = h.activation;
    if (u() < 0.5) {
      const bool relu = s.activation == Activation::relu;
      s.head_activation = relu ? Activation::gelu : Activation::relu;
      h.head_activation = relu ? formal::Activation::GELU : formal::Activation::ReLU;
    }
  }
  s.unembedding_bias = h.unembedding_bias = u() < 0.3;
  if (h.head || s.unembedding_bias) s.logit_multiplier = 1, h.logit_multiplier = 1;
  if (!h.head && u() < 0.2) {
    s.unembedding_scaled = true;
    h.logit_multiplier /= std::sqrt(static_cast<double>(s.width));
  }
}

// Variations that came later; they do not change how the others are drawn.
void draw_more(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  AttentionSpec& a = s.attention;
  draw_other_positions(u, s, h);
  draw_other_patterns(u, s, h);
  draw_embedding(u, s, h);
  draw_unembedding(u, s, h);
  if (a.scale == 0 && u() < 0.15) a.scaled = false, h.score_scale = 1;
  if (s.positions != Positions::alibi_scaled && u() < 0.2) a.scaled_by_layer = h.scaled_by_layer = true;
  if (s.experts.count > 0 && s.layer_groups == 0 && u() < 0.3) {
    s.experts.first = h.E_first = between(u, 0, static_cast<int>(s.layers) - 1);
    s.experts.every = h.E_every = between(u, 1, 2);
  }
}

// The encoder beside a decoder: what it has of its own.
void draw_encoder(Uniform& u, ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  s.encoder_layers = between(u, 1, 3);
  s.stacks_apart = u() < 0.3;
  s.source_reversed = u() < 0.2;
  if (u() < 0.3) s.source_vocab_size = between(u, 4, 12);
  if (u() < 0.5) return;
  EncoderShape& e = s.encoder;
  const int narrowest = static_cast<int>(std::max<int64_t>(3, a.rotary.width));
  const auto may_be = [&](int64_t width) {
    return width > s.axial_width && width >= 5 &&
           (a.relative.kind != RelativeAttention::transformer_xl || width % 2 == 0) &&
           (!is_sinusoidal(s.positions) || width % 4 == 0);
  };
  if (s.embedding_width == 0 && u() < 0.6) {
    int64_t heads = 0, width = 0;
    do {
      heads = between(u, 1, 4);
      width = heads * between(u, narrowest, 8);
    } while (!may_be(width));
    e.width = width;
    e.heads = heads;
  } else if (u() < 0.5) {
    for (int64_t heads = 1; heads <= 4; ++heads)
      if (s.width % heads == 0 && s.width / heads >= narrowest) e.heads = heads;
  }
  if (u() < 0.6) e.hidden = between(u, 2, 20);
  if (s.experts.count > 0 && u() < 0.5) {
    e.expert_first = between(u, 0, static_cast<int>(s.encoder_layers) - 1);
    e.expert_every = s.experts.every % 2 + 1;
  }
}

// Options of queries, keys, values and the norms before them.
void draw_newer_attention(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  AttentionSpec& a = s.attention;
  const bool plain =
      s.mixer == MixerSpec() && a.head_sizes.empty() && a.shared_query_key.empty() && !a.global_projections;
  if (plain && !a.relative.on() && u() < 0.2) {
    a.query_growth = 0.5F, h.growth = 0.5;
    a.query_growth_every = h.growth_every = between(u, 1, 3);
    a.query_growth_from = h.growth_from = between(u, 0, 1);
  }
  if (plain && a.query_key_norm == QueryKeyNorm::none && u() < 0.2) {
    a.query_key_norm = QueryKeyNorm::unit_rotated;
    h.query_key_norm = formal::QueryKeyNorm::unit_rotated;
  }
  if (plain && a.rotary.width > 0 && a.d_qk == a.d_vo && u() < 0.5) a.rotary.values = h.turned_values = true;
  if (plain && a.bias && u() < 0.3) a.key_bias = h.key_bias = false;
  if (a.rotary.width >= 4 && s.grid == 0 && u() < 0.3)
    a.rotary.turned = h.d_turned = 2 * between(u, 1, static_cast<int>(a.rotary.width) / 2 - 1);
  if (plain && !a.rotary.values && u() < 0.2) a.value_norm = h.unit_values = true;
  if (plain && !a.relative.on() && u() < 0.25) a.gated = h.gated_heads = true;
  if (plain && a.key_bias && !a.rotary.values && u() < 0.2) {
    a.values_of_keys = h.values_of_keys = true;
    a.d_vo = h.d_mid = a.d_qk;
  }
  if (s.norm_placement == NormPlacement::pre && s.branches == Branches::serial && u() < 0.2)
    s.mixer_norm = h.mixer_norm = false;
}

// Biases by distance beside other positions.
void draw_distance_bias(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  const AttentionSpec& a = s.attention;
  const bool biased =
      is_alibi(s.positions) || s.positions == Positions::relative || s.positions == Positions::toeplitz;
  if (!biased && s.mixer.attends() && !a.relative.on() && !a.global_projections && u() < 0.3) {
    using enum Positions;
    s.distance_bias = one_of(u, {relative, toeplitz, alibi, alibi_signed});
    if (s.distance_bias == relative) s.relative_buckets = h.T5_buckets = between(u, 4, 10);
    if (s.distance_bias == relative) s.relative_distance = h.distances = one_of(u, {7, 11, 13});
    if (s.distance_bias == toeplitz) s.relative_distance = h.distances = between(u, 1, 6);
    if (s.distance_bias == alibi) h.alibi = formal::Alibi::by_powers;
    if (s.distance_bias == alibi_signed) h.alibi = formal::Alibi::by_sign;
  } else if (s.positions == Positions::alibi && u() < 0.5) {
    s.positions = Positions::alibi_signed;
    h.alibi = formal::Alibi::by_sign;
  }
  if (h.distances > 0 && u() < 0.4) s.relative_by_layer = h.biases_by_layer = true;
}

// Options of feed-forward networks and experts.
void draw_newer_networks(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  ExpertsSpec& x = s.experts;
  if (s.gated && u() < 0.3) s.gate_limit = 0.25F, h.gate_limit = 0.25;
  if (s.head_width == 0 && u() < 0.3) {
    if (!s.gated && s.hidden_layers == 1 && x.count == 0) {
      s.activation = Activation::xielu;
      h.xIELU = true;
    } else {
      s.activation = one_of(u, {Activation::sigmoid, Activation::identity, Activation::gelu_quick});
      h.activation = s.activation == Activation::sigmoid    ? formal::Activation::sigmoid
                     : s.activation == Activation::identity ? formal::Activation::identity
                                                            : formal::Activation::GELU_sigmoid;
    }
  }
  if (x.count > 0) {
    x.router_bias = h.router_bias = u() < 0.3;
    x.bias = h.expert_bias = u() < 0.3;
    x.input_weighted = h.input_weighted = u() < 0.3;
  }
  if (s.head_width > 0 && u() < 0.3) s.head_bias = h.head_bias = false;
  draw_channel_mix(u, s, h);
}

// Blocks with an input beside the stream, and with a factor on their output.
void draw_layer_inputs(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  if (s.branches != Branches::serial || s.norm_placement == NormPlacement::post ||
      s.norm_placement == NormPlacement::stream)
    return;
  if (s.layer_groups == 0 && u() < 0.2) {
    s.block_scaled = true;
    h.layer_scales = {1.25, 0.5, 0.75};
    h.layer_scales.resize(static_cast<size_t>(s.layers));
  }
  if (s.architecture != Architecture::encoder_decoder && s.activation != Activation::xielu && u() < 0.2)
    s.layer_input_width = h.d_layer = between(u, 2, 5);
}

// Blocks of attention alone.
void draw_attention_alone(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  const bool plain = s.branches == Branches::serial && s.experts.count == 0 && s.layer_input_width == 0 &&
                     !s.gated && s.hidden_layers == 1 && s.encoder.hidden == 0 &&
                     s.channel_mix == ChannelMix::none;
  if (plain && u() < 0.1) s.hidden = h.d_mlp = 0;
}

// Hashes of shared queries, where the rest allows them. Rotations as f32 has them.
void draw_hashing(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  ModelSpec with = s;
  AttentionSpec& a = with.attention;
  a.sinks = false;
  a.cap = 0;
  a.patterns.clear();
  HashedAttention& o = a.hashing;
  o.chunk = between(u, 1, 4);
  o.before = between(u, 0, 2);
  o.after = between(u, 0, 1);
  o.rounds = between(u, 1, 3);
  for (int i = between(u, 1, 2); i > 0; --i) o.buckets.push_back(2 * between(u, 1, 3));
  o.same_bucket = u() < 0.5;
  try {
    check_spec(with);
  } catch (const Error&) {
    return;
  }
  s = with;
  h.sinks = false;
  h.score_cap = 0;
  h.patterns.clear();
  formal::Hashing& f = h.hashing;
  f = {o.chunk,       o.before, o.after, o.rounds, {o.buckets.begin(), o.buckets.end()},
       o.same_bucket, o.chunk,  o.chunk, {}};
  const RandomStream stream{static_cast<uint64_t>(1e6 * u()), 0, 0};
  uint64_t drawn = 0;
  for (int64_t i = 0; i < a.heads; ++i) {
    formal::Matrix<double>& R = f.R.emplace_back(a.d_qk, o.rounds * o.columns());
    for (formal::Index r = 0; r < R.rows(); ++r)
      for (formal::Index c = 0; c < R.cols(); ++c)
        R(r, c) = double{static_cast<float>(stream.normal(static_cast<int64_t>(drawn++)))};
  }
}

// Chunks in a ring for an encoder's other layers, where the rest allows them.
void draw_ring(Uniform& u, ModelSpec& s, VariedHyperparameters& h) {
  ModelSpec with = s;
  HashedAttention& o = with.attention.ring;
  o.chunk = between(u, 1, 4);
  o.before = between(u, 0, 2);
  o.after = between(u, 0, 2);
  with.attention.patterns.clear();
  with.attention.sinks = false;
  with.attention.cap = 0;
  try {
    check_spec(with);
  } catch (const Error&) {
    return;
  }
  s = with;
  h.patterns.clear();
  h.sinks = false;
  h.score_cap = 0;
  h.ring.chunk = h.ring.multiple = h.ring.whole = o.chunk;
  h.ring.before = o.before;
  h.ring.after = o.after;
  if (h.hashing.chunk == 0) return;
  h.hashing.multiple = h.ring.multiple = std::lcm(h.hashing.chunk, o.chunk);
  h.hashing.whole = h.ring.whole = std::min<formal::Index>(h.hashing.chunk, o.chunk);
}

// Linear attention to sources, where the rest allows it.
void draw_cross_linear(ModelSpec& s, VariedHyperparameters& h) {
  ModelSpec with = s;
  with.attention.cross_linear = true;
  try {
    check_spec(with);
  } catch (const Error&) {
    return;
  }
  s = with;
  h.linear_cross = true;
}

VariedShape drawn_shape(unsigned seed, Architecture architecture) {
  Uniform u(seed);
  ModelSpec s;
  s.architecture = architecture;
  const bool one_stack = architecture != Architecture::encoder_decoder;
  AttentionSpec& a = s.attention;
  s.vocab_size = between(u, 4, 12);
  s.context = between(u, 4, 8);
  s.layers = between(u, 1, 3);
  if (u() < 0.25 && one_stack) s.layer_groups = between(u, 1, static_cast<int>(s.layers));
  s.width = between(u, 5, 16);
  s.hidden = between(u, 2, 20);  // the slope of one GELU alone may be all but 0
  a.heads = between(u, 1, 6);
  a.kv_heads = a.heads % 2 == 0 && u() < 0.5 ? a.heads / 2 : u() < 0.2 ? 1 : a.heads;
  a.d_qk = between(u, 3, 8);
  // A norm of one number leaves its sign: with values or latents of 1 gradients are all but 0, and rounding.
  a.d_vo = between(u, 2, 6);
  s.tied = u() < 0.5;
  VariedHyperparameters h;
  const int f = between(u, 0, 2);
  const Activation activations[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh};
  s.activation = activations[f];
  h.activation = std::initializer_list<formal::Activation>{formal::Activation::ReLU, formal::Activation::GELU,
                                                           formal::Activation::GELU_tanh}
                     .begin()[f];
  s.normalization = one_of(u, {Normalization::layer, Normalization::layer_scale, Normalization::layer_plain,
                               Normalization::rms, Normalization::rms_plus_one, Normalization::scale,
                               Normalization::capsule, Normalization::layer_plus_one});
  h.norm_kind = static_cast<formal::NormKind>(s.normalization);
  s.norm_placement = one_of(u, {NormPlacement::pre, NormPlacement::pre, NormPlacement::post,
                                NormPlacement::sandwich, NormPlacement::branch, NormPlacement::none});
  h.placement = static_cast<formal::NormPlacement>(s.norm_placement);
  if (!one_stack)
    s.branches = Branches::serial;
  else if (s.norm_placement == NormPlacement::pre)
    s.branches = one_of(u, {Branches::serial, Branches::parallel, Branches::one_norm, Branches::reversible});
  else if (s.norm_placement != NormPlacement::post && u() < 0.2)
    s.branches = Branches::reversible;
  if (s.branches == Branches::reversible) s.tied = false;
  h.branches = static_cast<formal::Branches>(s.branches);
  using enum Positions;
  s.positions = architecture == Architecture::decoder
                    ? one_of(u, {learned, rotary, rotary, alibi, alibi_scaled, toeplitz, none, none})
                    : one_of(u, {learned, learned, rotary, alibi, alibi_scaled, toeplitz, toeplitz, none});
  const bool by_table = s.positions == Positions::learned;
  h.position_vectors = by_table ? formal::PositionVectors::learned : formal::PositionVectors::none;
  if (is_alibi(s.positions))
    h.alibi = s.positions == Positions::alibi ? formal::Alibi::by_powers : formal::Alibi::scaled;
  if (s.positions == Positions::toeplitz) s.relative_distance = h.distances = between(u, 1, 6);
  if (s.positions == Positions::rotary) {
    a.rotary.width = h.d_rot = 2 * between(u, 1, static_cast<int>(a.d_qk) / 2);
    h.interleaved = u() < 0.5;
    a.rotary.layout = h.interleaved ? RotaryLayout::interleaved : RotaryLayout::halves;
    a.rotary.base = h.theta_base = u() < 0.5 ? 10000 : 100;
  }
  if (s.positions == Positions::none || (by_table && u() < 0.3)) {
    RelativeSpec& r = a.relative;
    r.kind = one_of(u, {RelativeAttention::none, RelativeAttention::shaw, RelativeAttention::shaw_both,
                        RelativeAttention::transformer_xl, RelativeAttention::transformer_xl,
                        RelativeAttention::disentangled, RelativeAttention::disentangled});
    // An encoder's attention finds no order by itself.
    if (architecture != Architecture::decoder && s.positions == Positions::none && !r.on())
      r.kind = RelativeAttention::shaw;
    h.relative = static_cast<formal::RelativeAttention>(r.kind);
    if (r.on()) r.distance = h.l_rel = between(u, 2, 5);
    if (r.kind == RelativeAttention::transformer_xl) {
      s.width += s.width % 2;
      if (u() < 0.5) r.distance = h.l_rel = 0;
    }
    if (r.kind == RelativeAttention::disentangled) {
      if (u() < 0.4) r.buckets = h.buckets = 4, r.distance = h.l_rel = between(u, 4, 8);
      r.by_content = h.by_content = u() < 0.7;
      r.by_position = h.by_position = !r.by_content || u() < 0.7;
      r.shared_projections = h.shared_projections = u() < 0.4;
      r.normed = h.normed_distances = u() < 0.4;
    }
  }
  for (int i = u() < 0.5 ? between(u, 1, 2) : 0; i > 0; --i) {
    Pattern p;
    if (u() < 0.6) p.window = between(u, 1, 4);
    if (p.window > 0 && u() < 0.4) p.dilation = between(u, 2, 3);
    if (u() < 0.3) p.stride = between(u, 2, 4);
    if (u() < 0.3) p.global = between(u, 1, 2);
    if (u() < 0.3) {
      p.block = between(u, 2, 4);
      p.neighbours = between(u, 0, 1);
      p.summary = between(u, 0, 2);
    }
    a.patterns.push_back(p);
    h.patterns.push_back({.window = p.window,
                          .dilation = p.dilation,
                          .stride = p.stride,
                          .global = p.global,
                          .block = p.block,
                          .neighbours = p.neighbours,
                          .summary = p.summary});
  }
  if ((by_table || (h.d_rot > 0 && h.d_rot % 4 == 0)) && u() < 0.4)
    s.grid = h.grid = between(u, 1, static_cast<int>(s.context));
  if (by_table && s.grid > 0 && u() < 0.5)
    s.axial_width = h.d_axial = between(u, 1, static_cast<int>(s.width) - 1);
  if (u() < 0.2) s.embedding_unit = h.unit_embeddings = true;
  a.query_key_norm =
      one_of(u, {QueryKeyNorm::none, QueryKeyNorm::none, QueryKeyNorm::none, QueryKeyNorm::heads,
                 QueryKeyNorm::whole, QueryKeyNorm::layer, QueryKeyNorm::layer_heads,
                 QueryKeyNorm::heads_plus_one, QueryKeyNorm::heads_rotated});
  h.query_key_norm = static_cast<formal::QueryKeyNorm>(a.query_key_norm);
  if (a.rotary.width > 0 && a.rotary.width < a.d_qk && a.query_key_norm == QueryKeyNorm::none &&
      architecture == Architecture::decoder && u() < 0.6) {
    a.kv_heads = a.heads;
    h.d_latent = between(u, 2, 9);
    if (u() < 0.5) h.d_query_latent = between(u, 2, 9);
    s.mixer = LatentMixer{h.d_latent, h.d_query_latent};
  }
  if (a.kv_heads == a.heads && h.d_latent == 0 && a.query_key_norm == QueryKeyNorm::none &&
      !a.relative.on() && u() < 0.35)
    for (int i = s.layer_groups > 0 ? 1 : between(u, 1, 2); i > 0; --i) {
      a.shared_query_key.push_back(u() < 0.7 ? 1 : 0);
      h.shared_query_key.push_back(a.shared_query_key.back() != 0);
    }
  s.gated = h.gated = u() < 0.5;
  a.bias = h.qkv_bias = u() < 0.5;
  a.out_bias = h.out_bias = u() < 0.5;
  s.feed_forward_bias = h.mlp_bias = u() < 0.5;
  if (u() < 0.3) a.scale = 0.25F, h.score_scale = 0.25;
  if (u() < 0.3) s.embedding_multiplier = 1.5F, h.embedding_multiplier = 1.5;
  if (u() < 0.3) s.residual_multiplier = 0.5F, h.residual_multiplier = 0.5;
  if (u() < 0.3) s.logit_multiplier = 0.75F, h.logit_multiplier = 0.75;
  if (h.d_latent == 0 && u() < 0.3) a.clip = 0.5F, h.clip = 0.5;
  if (!a.relative.on() && u() < 0.3) a.cap = 0.75F, h.score_cap = 0.75;
  if (u() < 0.3) s.logit_cap = 0.5F, h.logit_cap = 0.5;
  if (u() < 0.3) a.sinks = h.sinks = true;
  if (u() < 0.3) {
    ExpertsSpec& x = s.experts;
    x.count = h.E = between(u, 1, 6);
    x.chosen = h.k = between(u, 1, static_cast<int>(x.count));
    x.hidden = h.d_expert = between(u, 1, 7);
    h.sigmoid_affinities = u() < 0.4;
    x.score = h.sigmoid_affinities ? RouterScore::sigmoid : RouterScore::softmax;
    x.renormalized = h.renormalized = u() < 0.5;
    if (u() < 0.3) x.scale = 1.25F, h.expert_scale = 1.25;
    if (u() < 0.5) x.shared_hidden = h.d_shared = between(u, 1, 5);
    if (x.shared_hidden > 0) x.shared_gated = h.shared_gated = u() < 0.5;
    x.balance = 0;
  } else if (u() < 0.2) {
    s.hidden_layers = between(u, 2, 3);
    h.further_layers = s.hidden_layers - 1;
  }
  if (h.d_latent == 0 && a.kv_heads == a.heads && !a.relative.on() && a.shared_query_key.empty() &&
      a.query_key_norm == QueryKeyNorm::none && a.rotary.width < a.d_qk && u() < 0.5) {
    const auto narrowest = static_cast<int>(std::max<int64_t>(2, a.rotary.width));
    for (int64_t i = 0; i < a.heads; ++i) {
      a.head_sizes.push_back(between(u, narrowest, 9));
      h.head_sizes.push_back(a.head_sizes.back());
    }
    a.d_qk = a.d_vo = *std::max_element(a.head_sizes.begin(), a.head_sizes.end());
  }
  if (s.norm_placement == NormPlacement::pre && s.branches == Branches::serial && u() < 0.4) {
    s.norm_placement = NormPlacement::stream;
    h.placement = formal::NormPlacement::stream;
  }
  if (s.ends_with_norm() && u() < 0.25) s.final_norm = h.final_norm = false;
  Uniform more(seed + 5000);
  draw_more(more, s, h);
  // Numbers that no norm bounds would saturate a narrow cap: all gradients would be rounding.
  if (s.logit_cap > 0 && (!s.ends_with_norm() || h.head)) s.logit_cap = 8, h.logit_cap = 8;
  h.N_V = s.vocab_size;
  h.l_max = s.context;
  h.L = s.layers;
  h.groups = s.layer_groups > 0 ? s.layer_groups : s.layers;
  h.H = a.heads;
  h.H_kv = a.kv_heads;
  h.d_e = s.width;
  h.d_mlp = s.hidden;
  h.d_attn = a.d_qk;
  h.d_mid = a.d_vo;
  h.d_f = s.head_width;
  h.bidirectional = architecture == Architecture::encoder;
  h.epsilon = double{s.norm_epsilon};
  h.tied = s.tied;
  if (!one_stack) draw_encoder(more, s);
  draw_mixer(more, s, h);
  draw_newer_attention(more, s, h);
  draw_distance_bias(more, s, h);
  if (!a.shared_query_key.empty() && more() < 0.9) draw_hashing(more, s, h);
  if (architecture == Architecture::encoder && more() < 0.4) draw_ring(more, s, h);
  if (!one_stack && more() < 0.3) draw_cross_linear(s, h);
  draw_newer_networks(more, s, h);
  draw_layer_inputs(more, s, h);
  draw_attention_alone(more, s, h);
  check_spec(s);
  return {h, s};
}

// Variations that are drawn so seldom that a part of the seeds goes on drawing until one comes.
constexpr const char* kRare[] = {"mixer linear_attention",
                                 "hash_same_bucket",
                                 "mixer random_features",
                                 "random_unit",
                                 "mixer attention_free",
                                 "hashed attention",
                                 "ring",
                                 "cross_linear",
                                 "random_epsilon",
                                 "mixer gated_delta",
                                 "mixer delta_rule",
                                 "mixer mamba",
                                 "mixer rwkv7",
                                 "mixer mamba2",
                                 "mixer rwkv4",
                                 "mixer convolution"};

VariedShape varied_shape(unsigned seed, Architecture architecture) {
  constexpr unsigned kShare = 6, kStep = 100'003,
                     kMost = 20'000;  // 5 of 6: those whose layers mixed_shape() leaves alike
  VariedShape shape = drawn_shape(seed, architecture);
  if (seed % kShare != 5) return shape;
  std::vector<std::string> rare;
  for (const auto& [what, has] : variations_of(shape.spec))
    if (std::ranges::find(kRare, what) != std::end(kRare)) rare.push_back(what);
  const std::string& wanted = rare[seed / kShare % rare.size()];
  for (unsigned i = 1; i < kMost && !variations_of(shape.spec).at(wanted); ++i)
    shape = drawn_shape(seed + i * kStep, architecture);
  return shape;
}

// `other`'s block as a kind of `shape`'s layers.
void add_kind(VariedShape& shape, const VariedShape& other, const std::string& name) {
  const auto& [h, s] = shape;
  VariedHyperparameters kind = other.hyper;
  static_cast<formal::Hyperparameters&>(kind) = h;
  kind.H = other.hyper.H;
  kind.d_mlp = other.hyper.d_mlp;
  kind.d_attn = other.hyper.d_attn;
  kind.d_mid = other.hyper.d_mid;
  kind.activation = other.hyper.activation;
  kind.placement = h.placement;
  kind.branches = h.branches;
  kind.position_vectors = h.position_vectors;
  kind.bidirectional = h.bidirectional;
  kind.grid = h.grid;
  kind.d_layer = h.d_layer;
  BlockSpec block = other.spec;
  block.block_scaled = s.block_scaled;
  block.norm_placement = s.norm_placement;
  block.branches = s.branches;
  shape.hyper.kinds.push_back(kind);
  shape.spec.kinds.push_back({name, block});
}

}  // namespace

// The same model, some of whose layers reuse the keys of others; where they cannot, it stays.
VariedShape with_reused_keys(const VariedShape& shape, Uniform& u) {
  VariedShape reusing = shape;
  auto& [h, s] = reusing;
  VariedHyperparameters kind = h;
  kind.keys_of_kind = 0;
  BlockSpec block = s;
  block.attention.reused_keys = true;
  h.kinds = {kind};
  s.kinds = {{"reused", block}};
  for (int64_t l = 0; l < s.layers; ++l) {
    const bool reuses = l + 1 == s.layers || (l > 0 && u() < 0.5);
    h.kind_of_layer.push_back(reuses ? 1 : 0);
    s.layer_kinds.push_back(reuses ? "reused" : kDefaultKind);
  }
  try {
    check_spec(s);
    return reusing;
  } catch (const Error&) {
    return shape;
  }
}

// Five layers with a window, then one without, with two rotary
// bases.
VariedShape gemma3_shape() {
  const TrainConfig config = parse_train_config(
      "[data]\ntrain = 'x.txt'\n[model]\npreset = 'gemma3'\nwidth = 12\nheads = 4\nlayers = 7\ncontext = 9\n"
      "hidden = 17\nkind.local.patterns = ['window 3']\n",
      "c.toml", {});
  VariedShape shape;
  auto& [h, s] = shape;
  s = config.model;
  s.vocab_size = h.N_V = 11;
  h.l_max = 9;
  h.L = h.groups = 7;
  h.H = 4;
  h.H_kv = 2;
  h.d_e = h.d_f = 12;
  h.d_mlp = 17;
  h.d_attn = h.d_mid = 3;
  h.epsilon = double{1e-6F};
  h.tied = true;
  h.activation = formal::Activation::GELU_tanh;
  h.norm_kind = formal::NormKind::plus_one;
  h.placement = formal::NormPlacement::sandwich;
  h.query_key_norm = formal::QueryKeyNorm::heads_plus_one;
  h.gated = true;
  h.qkv_bias = h.out_bias = h.mlp_bias = false;
  h.position_vectors = formal::PositionVectors::none;
  h.embedding_multiplier = std::sqrt(12.0);
  h.d_rot = 2;
  h.theta_base = 1e6;
  VariedHyperparameters local = h;
  local.theta_base = 1e4;
  local.patterns = {{.window = 3}};
  h.kinds = {local};
  h.kind_of_layer = {1, 1, 1, 1, 1, 0};
  return shape;
}

VariedShape mixed_shape(unsigned seed, Architecture architecture) {
  VariedShape shape = varied_shape(seed, architecture);
  Uniform u(seed + 3000);
  if (shape.spec.layers == 1 || shape.spec.encoder.any()) return shape;
  if (seed % 3 == 1) return with_reused_keys(shape, u);
  if (seed % 3 == 2) return shape;
  for (unsigned i = 0; i < 20; ++i) {
    VariedShape mixed = shape;
    const int kinds = between(u, 1, 2);
    for (int k = 1; k <= kinds; ++k)
      add_kind(mixed, drawn_shape(10'000 + 100 * seed + 2 * i + static_cast<unsigned>(k), architecture),
               k == 1 ? "a" : "b");
    for (int64_t l = 0; l < mixed.spec.layers; ++l) {
      const int kind = between(u, 0, kinds);
      mixed.hyper.kind_of_layer.push_back(kind);
      mixed.spec.layer_kinds.push_back(kind == 0 ? kDefaultKind : mixed.spec.kinds[kind - 1].name);
    }
    for (int64_t l = 0; l < mixed.spec.encoder_layers && seed % 2 == 0; ++l) {
      const int kind = between(u, 0, kinds);
      mixed.spec.encoder_layer_kinds.push_back(kind == 0 ? kDefaultKind : mixed.spec.kinds[kind - 1].name);
    }
    try {
      check_spec(mixed.spec);
      return mixed;
    } catch (const Error&) {  // draw others
    }
  }
  return shape;
}

VariedEDHyperparameters two_stacks_of(const VariedShape& shape) {
  const auto& [h, s] = shape;
  VariedEDHyperparameters both{h, h, false, false, s.source_reversed};
  VariedHyperparameters& e = both.encoder;
  e.bidirectional = true;
  e.L = e.groups = s.encoder_layers;
  if (s.block_scaled) {
    e.layer_scales = {1.5, 0.75, 1.25};
    e.layer_scales.resize(static_cast<size_t>(e.L));
  }
  if (s.source_vocab_size > 0) e.N_V = s.source_vocab_size;
  if (!s.encoder_layer_kinds.empty()) e.kind_of_layer.clear();
  for (const std::string& name : s.encoder_layer_kinds) {
    const auto kind = std::ranges::find(s.kinds, name, &BlockKind::name);
    e.kind_of_layer.push_back(kind == s.kinds.end() ? 0 : kind - s.kinds.begin() + 1);
  }
  const auto& of = e.kind_of_layer;
  const bool alike = !s.encoder_layer_kinds.empty() && std::ranges::count(of, of[0]) == std::ssize(of);
  if (alike && of[0] > 0) {  // then the norms beside the layers are of their kind, too
    const VariedHyperparameters kind = e.kinds[static_cast<size_t>(of[0] - 1)];
    e.norm_kind = kind.norm_kind;
    e.epsilon = kind.epsilon;
  }
  // By what the fields mean, not by the engine's encoder_spec(), which the comparison is to judge.
  const EncoderShape& own = s.encoder;
  if (own.width > 0) e.d_e = own.width;
  if (own.hidden > 0) e.d_mlp = own.hidden;
  if (own.heads > 0) e.H = e.H_kv = own.heads;
  if (own.width > 0 || own.heads > 0) {
    e.d_attn = e.d_mid = e.d_e / e.H;
    e.head_sizes.clear();
  }
  if (own.expert_every > 0) {
    e.E_first = own.expert_first;
    e.E_every = own.expert_every;
  }
  both.own_tokens = s.source_vocab_size > 0 || s.encoder.width > 0;
  both.own_embedding = both.own_tokens || s.stacks_apart;
  both.decoder.d_z = e.d_e;
  for (VariedHyperparameters& kind : both.encoder.kinds) kind.bidirectional = true;
  for (VariedHyperparameters& kind : both.decoder.kinds) kind.d_z = e.d_e;
  for (VariedHyperparameters* stack : {&both.encoder, &both.decoder})
    if (s.embedding_scaled) stack->embedding_multiplier *= std::sqrt(static_cast<double>(stack->d_sum()));
  return both;
}

}  // namespace qkv

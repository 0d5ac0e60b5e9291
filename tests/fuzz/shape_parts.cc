#include "tests/fuzz/shape_parts.h"

#include <algorithm>
#include <numeric>

namespace qkv::testing {

// Sizes that a kernel's vectors, tiles and blocks do not divide. Heads are `head` wide at least.
ModelSpec sized(Draw& d, int64_t least_head) {
  const int64_t heads = d.of<int64_t>({1, 2, 3, 4, 5, 6, 7}), head = d.between(least_head, 9);
  const int64_t vocab = d.chance(0.15) ? d.between(1, 4) : d.chance(0.05) ? 300 : d.between(5, 60);
  const int64_t context = d.chance(0.1) ? d.between(60, 140) : d.between(2, 20);
  ModelSpec s = gpt2_spec(vocab, context, std::max<int64_t>(2, heads * head), d.between(1, 3), heads);
  s.hidden = d.between(1, 40);
  s.init_std = 0.25F;
  return s;
}

int64_t divisor_of(int64_t n, Draw& d, int64_t most) {
  std::vector<int64_t> all;
  for (int64_t i = 1; i <= std::min(n, most); ++i)
    if (n % i == 0) all.push_back(i);
  return d.of(all);
}

void share_keys(ModelSpec& s, Draw& d) {
  s.attention.kv_heads = divisor_of(s.attention.heads, d);
}

void turn(ModelSpec& s, Draw& d, bool whole) {
  s.positions = Positions::rotary;
  RotarySpec& r = s.attention.rotary;
  r.width = s.attention.d_qk / 2 * 2;
  if (!whole) r.width = 2 * d.between(1, std::max<int64_t>(1, r.width / 2));
}

ModelSpec gpt2(Draw& d) {
  return sized(d);
}

// Heads of an even width, all of which is turned.
ModelSpec llama(Draw& d) {
  ModelSpec s = sized(d);
  AttentionSpec& a = s.attention;
  a.d_qk = a.d_vo = 2 * d.between(1, 6);
  if (d.chance(0.5)) s.width = a.heads * a.d_qk;
  share_keys(s, d);
  a.bias = a.out_bias = s.feed_forward_bias = s.tied = false;
  s.gated = true;
  s.activation = Activation::silu;
  s.normalization = Normalization::rms;
  s.norm_epsilon = 1e-6F;
  turn(s, d, true);
  return s;
}

ModelSpec bert(Draw& d) {
  const ModelSpec sizes = sized(d);
  ModelSpec s = bert_spec(sizes.vocab_size, sizes.context, sizes.width, sizes.layers, sizes.attention.heads);
  s.hidden = sizes.hidden;
  s.init_std = sizes.init_std;
  s.segments = d.between(1, 3);
  return s;
}

namespace {

std::vector<std::string> labels(Draw& d, int64_t least = 1) {
  std::vector<std::string> out;
  for (int64_t i = d.between(least, 4); i > 0; --i) out.push_back("label " + std::to_string(out.size()));
  return out;
}

}  // namespace

// A head in the place of an encoder's unembedding, or that itself.
void end_encoder(ModelSpec& s, Draw& d, const std::vector<Output>& outputs) {
  s.output = d.of(outputs);
  if (s.output == Output::tokens) return;
  s.head_width = 0;
  s.unembedding_bias = false;
  s.tied = true;
  s.head_activation = {};
  s.pooler = s.output == Output::sequence_classes || s.output == Output::embedding;
  if (s.output == Output::sequence_classes && d.chance(0.3))
    s.problem = Problem::multiple_choice;
  else if (s.output == Output::sequence_classes || s.output == Output::token_classes)
    s.labels = labels(d);
}

const std::vector<Output> kOfBert = {Output::tokens,        Output::tokens, Output::sequence_classes,
                                     Output::token_classes, Output::span,   Output::embedding};

// Classes in the place of a decoder's unembedding, sometimes.
void end_decoder(ModelSpec& s, Draw& d) {
  if (!d.chance(0.15)) return;
  s.output = Output::sequence_classes;
  s.labels = labels(d);
  s.pooling = Pooling::last;
  s.tied = true;
  s.unembedding_bias = s.classifier_bias = false;
}

void add_encoder(ModelSpec& s, Draw& d) {
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = d.between(1, 3);
}

// Another number of heads, and other feed-forward networks, in the encoder.
void set_encoder_apart(ModelSpec& s, Draw& d) {
  if (d.chance(0.6)) s.encoder.heads = divisor_of(s.width, d, 12);
  if (s.encoder.heads == s.attention.heads) s.encoder.heads = 0;
  if (d.chance(0.5)) s.encoder.hidden = d.between(1, 40);
  if (s.encoder.hidden == s.hidden) s.encoder.hidden = 0;
}

ModelSpec bart(Draw& d) {
  ModelSpec s = sized(d);
  add_encoder(s, d);
  set_encoder_apart(s, d);
  s.activation = Activation::gelu;
  s.stacks_apart = s.embedding_norm = s.unembedding_bias = true;
  s.embedding_scaled = d.chance(0.5);
  s.norm_placement = NormPlacement::post;
  return s;
}

ModelSpec t5(Draw& d) {
  ModelSpec s = sized(d);
  add_encoder(s, d);
  AttentionSpec& a = s.attention;
  a.d_qk = a.d_vo = d.between(1, 9);
  a.bias = a.out_bias = a.scaled = s.feed_forward_bias = false;
  s.unembedding_scaled = s.tied = d.chance(0.5);
  s.normalization = Normalization::rms;
  s.norm_epsilon = 1e-6F;
  s.positions = Positions::relative;
  s.relative_buckets = d.between(4, 20);
  s.relative_distance = s.relative_buckets / 2 + d.between(1, 20);
  s.activation = Activation::relu;
  return s;
}

ModelSpec images(Draw& d, int64_t tokens) {
  ModelSpec s = sized(d);
  s.architecture = Architecture::encoder;
  FeatureSpec& f = s.features;
  f = {.kind = FeatureSpec::Kind::patches, .channels = d.between(1, 4), .patch = d.between(1, 4)};
  f.image = f.patch * d.between(1, 4);
  s.vocab_size = tokens;
  s.context = f.patches() + tokens;
  s.activation = Activation::gelu;
  s.attention.bias = d.chance(0.7);
  s.output = Output::sequence_classes;
  s.labels = labels(d);
  return s;
}

void scale_angles(ModelSpec& s, Draw& d) {
  RotarySpec& r = s.attention.rotary;
  r.scaling = d.of<RotaryScaling>({RotaryScaling::none, RotaryScaling::none, RotaryScaling::linear,
                                   RotaryScaling::dynamic, RotaryScaling::yarn, RotaryScaling::llama3,
                                   RotaryScaling::longrope});
  if (r.scaling == RotaryScaling::none) return;
  r.factor = d.between(1, 4);
  if (r.scaling == RotaryScaling::linear) return;
  r.original_context = d.between(1, s.context);
  if (r.scaling == RotaryScaling::yarn) r.high = 32;
  if (r.scaling != RotaryScaling::longrope) return;
  for (int64_t i = 0; i < r.width / 2; ++i) {
    r.short_factors.push_back(1 + 0.25 * static_cast<double>(d.between(0, 4)));
    r.long_factors.push_back(1 + static_cast<double>(d.between(0, 4)));
  }
}

HashedAttention hashes(Draw& d, int64_t longest) {
  HashedAttention h{.chunk = d.between(1, longest),
                    .before = d.between(0, 2),
                    .after = d.between(0, 2),
                    .rounds = d.between(1, 3),
                    .buckets = {2 * d.between(1, 4)}};
  if (d.chance(0.5)) h.buckets.push_back(2 * d.between(1, 3));
  return h;
}

ExpertsSpec experts(Draw& d) {
  ExpertsSpec e;
  e.count = d.between(1, 7);
  e.chosen = d.between(1, std::min<int64_t>(3, e.count));
  e.hidden = d.between(1, 9);
  e.renormalized = d.chance(0.5);
  return e;
}

void compress(ModelSpec& s, Draw& d) {
  AttentionSpec& a = s.attention;
  a.kv_heads = a.heads;
  s.mixer = LatentMixer{d.between(1, 9), d.chance(0.5) ? d.between(1, 9) : 0};
  a.d_qk = d.between(3, 9);
  a.d_vo = d.between(1, 9);
  a.rotary = {.width = 2 * d.between(1, (a.d_qk - 1) / 2), .layout = RotaryLayout::interleaved};
}

namespace {

Pattern pattern(Draw& d, bool encoder) {
  Pattern p;
  switch (d.between(0, 4)) {
    case 0:
      break;
    case 1:
      p.window = d.between(1, 6);
      if (d.chance(0.4)) p.dilation = d.between(2, 3);
      if (d.chance(0.4)) p.global = d.between(1, 3);
      break;
    case 2:
      p.stride = d.between(1, 5);
      if (d.chance(0.5)) p.window = d.between(1, 4);
      break;
    case 3:
      p.block = d.between(1, 6);
      p.neighbours = d.between(0, 2);
      p.summary = d.between(0, p.block);
      break;
    default:
      p.block = d.between(1, 6);
      p.neighbours = d.between(0, 2);
      p.ends = d.chance(0.5);
      p.random = d.between(0, 3);
      if (encoder && d.chance(0.3)) p.beyond = d.between(1, 20);
      if (encoder && p.ends && d.chance(0.3)) p.first_block = d.between(1, 4);
  }
  return p;
}

}  // namespace

std::vector<Pattern> patterns(Draw& d, bool encoder) {
  std::vector<Pattern> out;
  for (int64_t i = d.between(1, 3); i > 0; --i) out.push_back(pattern(d, encoder));
  return out;
}

// Other positions than those that there are, of all kinds.
void place(ModelSpec& s, Draw& d) {
  using enum Positions;
  s.attention.rotary = {};
  s.first_position = s.grid = s.axial_width = 0;
  s.positions = d.of<Positions>({learned, sinusoidal, sinusoidal_paper, sinusoidal_halves, sinusoidal_closed,
                                 fourier, relative, toeplitz, rotary, rotary, alibi, alibi_evens_first,
                                 alibi_scaled, alibi_signed, none});
  if (s.positions == relative) {
    s.relative_buckets = d.between(4, 12);
    s.relative_distance = s.relative_buckets / 2 + d.between(1, 9);
  }
  if (s.positions == toeplitz) s.relative_distance = d.between(1, 9);
  s.relative_by_layer = (s.positions == relative || s.positions == toeplitz) && d.chance(0.3);
  if (s.positions == rotary) {
    s.attention.d_qk = std::max<int64_t>(2, s.attention.d_qk);
    turn(s, d, d.chance(0.5));
    s.attention.rotary.layout = d.of<RotaryLayout>({RotaryLayout::halves, RotaryLayout::interleaved});
    scale_angles(s, d);
  }
  if (s.positions == sinusoidal_closed && d.chance(0.5)) s.first_position = d.between(0, 5);
  if ((s.positions == learned || s.positions == rotary || s.positions == sinusoidal) && d.chance(0.2))
    s.grid = d.between(1, s.context);
  if (s.positions == learned && s.grid > 0 && s.width > 1 && d.chance(0.5))
    s.axial_width = d.between(1, s.width - 1);
}

void relate(ModelSpec& s, Draw& d) {
  using enum RelativeAttention;
  if (s.positions != Positions::learned) {
    s.positions = Positions::none;
    s.attention.rotary = {};
  }
  RelativeSpec& r = s.attention.relative;
  r = {.kind = d.of<RelativeAttention>({shaw, shaw_both, transformer_xl, disentangled}),
       .distance = d.between(2, 12)};
  if (r.kind == transformer_xl) {
    r.distance = d.between(0, 6);
    r.segments = s.architecture == Architecture::encoder && d.chance(0.5);
  }
  if (r.kind != disentangled) return;
  r.by_content = d.chance(0.7);
  r.by_position = !r.by_content || d.chance(0.7);
  r.shared_projections = d.chance(0.5);
  r.normed = d.chance(0.5);
  if (r.distance >= 6 && d.chance(0.5)) r.buckets = d.between(4, 2 * r.distance - 3);
}

namespace {

using Change = void (*)(ModelSpec&, Draw&);

// Drops what only attention reads where the mixer is another.
void leave_attention(ModelSpec& s) {
  if (s.mixer.attends()) return;
  s.attention.relative = {};
  s.attention.rotary = {};
  s.memory = 0;
  if (is_of_blocks(s.positions)) s.positions = Positions::none;
}

// Changes that any model may have, which its family need not be able to say.
const Change kChanges[] = {
    [](ModelSpec& s, Draw& d) {
      using enum Normalization;
      s.normalization = d.of<Normalization>(
          {layer, layer_scale, layer_plain, rms, rms_plus_one, scale, capsule, layer_plus_one, batch});
    },
    [](ModelSpec& s, Draw& d) {
      using enum NormPlacement;
      s.norm_placement = d.of<NormPlacement>({pre, post, sandwich, branch, none});
    },
    [](ModelSpec& s, Draw& d) {
      using enum Branches;
      s.branches = d.of<Branches>({serial, parallel, one_norm, reversible});
      if (s.branches == reversible && s.output == Output::tokens) s.tied = false;
    },
    [](ModelSpec& s, Draw&) { s.attention.bias = !s.attention.bias; },
    [](ModelSpec& s, Draw&) { s.attention.out_bias = !s.attention.out_bias; },
    [](ModelSpec& s, Draw&) { s.feed_forward_bias = !s.feed_forward_bias; },
    [](ModelSpec& s, Draw&) { s.gated = !s.gated; },
    [](ModelSpec& s, Draw& d) {
      using enum Activation;
      s.activation = d.of<Activation>(
          {relu, gelu, gelu_tanh, gelu_quick, silu, tanh, relu_squared, sigmoid, identity, xielu});
      if (s.head_activation == s.activation) s.head_activation = {};
    },
    [](ModelSpec& s, Draw& d) { s.attention.d_vo = d.between(1, 9); },
    [](ModelSpec& s, Draw& d) { s.attention.d_qk = std::max(d.between(1, 9), s.attention.rotary.width); },
    [](ModelSpec& s, Draw& d) { share_keys(s, d); },
    [](ModelSpec& s, Draw& d) {
      if (s.positions != Positions::rotary && s.mixer.get_if<LatentMixer>() == nullptr)
        s.width = d.between(2, 33);
      if (s.head_width > 0) s.head_width = s.embedding_width > 0 ? s.embedding_width : s.width;
    },
    [](ModelSpec& s, Draw& d) {
      using enum QueryKeyNorm;
      s.attention.query_key_norm =
          d.of<QueryKeyNorm>({heads, whole, layer, layer_heads, heads_plus_one, heads_rotated, unit_rotated});
    },
    [](ModelSpec& s, Draw& d) {
      s.attention.patterns = patterns(d, s.architecture == Architecture::encoder);
    },
    [](ModelSpec& s, Draw& d) { place(s, d); },
    [](ModelSpec& s, Draw& d) { place(s, d); },
    [](ModelSpec& s, Draw& d) { relate(s, d); },
    [](ModelSpec& s, Draw&) { s.embedding_norm = !s.embedding_norm; },
    [](ModelSpec& s, Draw&) { s.final_norm = !s.final_norm; },
    [](ModelSpec& s, Draw&) { s.embedding_scaled = !s.embedding_scaled; },
    [](ModelSpec& s, Draw& d) {
      s.embedding_width = d.between(1, 9);
      s.embedding_projected_last = d.chance(0.5);
      if (s.head_width > 0) s.head_width = s.embedding_width;
    },
    [](ModelSpec& s, Draw& d) { s.layer_groups = d.between(1, s.layers); },
    [](ModelSpec& s, Draw& d) { s.experts = experts(d); },
    [](ModelSpec& s, Draw& d) {
      s.experts = experts(d);
      s.experts.first = d.between(0, s.layers - 1);
      s.experts.every = d.between(1, 2);
      if (d.chance(0.5)) s.experts.score = RouterScore::sigmoid;
      s.experts.choice_bias = d.chance(0.3);
      if (d.chance(0.5)) s.experts.shared_hidden = d.between(1, 7);
      s.experts.shared_gated = s.experts.shared_hidden > 0 && d.chance(0.5);
    },
    [](ModelSpec& s, Draw& d) {
      s.experts = experts(d);
      s.experts.router_bias = d.chance(0.5);
      s.experts.bias = d.chance(0.5);
      s.experts.input_weighted = d.chance(0.5);
    },
    [](ModelSpec& s, Draw& d) {
      AttentionSpec& a = s.attention;
      a.query_growth = 0.25F * static_cast<float>(d.between(1, 4));
      a.query_growth_every = d.between(1, 9);
      a.query_growth_from = d.between(0, 1);
    },
    [](ModelSpec& s, Draw&) { s.attention.rotary.values = s.attention.rotary.width > 0; },
    [](ModelSpec& s, Draw&) { s.attention.key_bias = false; },
    [](ModelSpec& s, Draw& d) {
      s.gated = true;
      s.gate_limit = 0.25F * static_cast<float>(d.between(1, 9));
    },
    [](ModelSpec& s, Draw& d) {
      using enum Positions;
      s.distance_bias = d.of<Positions>({relative, toeplitz, alibi, alibi_signed});
      s.relative_by_layer = !is_alibi(s.distance_bias) && d.chance(0.5);
      s.relative_buckets = d.between(4, 12);
      s.relative_distance = s.relative_buckets / 2 + d.between(1, 9);
    },
    [](ModelSpec& s, Draw&) { s.attention.value_norm = true; },
    [](ModelSpec& s, Draw&) {
      s.attention.values_of_keys = true;
      s.attention.d_vo = s.attention.d_qk;
    },
    [](ModelSpec& s, Draw& d) {
      if (s.attention.rotary.width > 0)
        s.attention.rotary.turned = 2 * d.between(0, s.attention.rotary.width / 2);
    },
    [](ModelSpec& s, Draw&) { s.block_scaled = true; },
    [](ModelSpec& s, Draw&) { s.position_base = 123.5; },
    [](ModelSpec& s, Draw& d) { s.layer_input_width = d.between(1, 7); },
    [](ModelSpec& s, Draw& d) {
      if (s.architecture != Architecture::decoder || s.output != Output::tokens || s.memory > 0) return;
      s.mtp = {d.between(1, 3), d.of<MtpForm>({MtpForm::chained, MtpForm::joined, MtpForm::parallel})};
    },
    [](ModelSpec& s, Draw&) { s.mixer_norm = false; },
    [](ModelSpec& s, Draw&) { s.head_bias = false; },
    [](ModelSpec& s, Draw& d) { s.attention.cap = static_cast<float>(d.between(1, 9)); },
    [](ModelSpec& s, Draw& d) { s.attention.clip = 0.25F * static_cast<float>(d.between(1, 9)); },
    [](ModelSpec& s, Draw& d) { s.logit_cap = static_cast<float>(d.between(1, 9)); },
    [](ModelSpec& s, Draw&) { s.attention.sinks = true; },
    [](ModelSpec& s, Draw&) { s.attention.gated = true; },
    [](ModelSpec& s, Draw& d) { s.attention.scale = 0.125F * static_cast<float>(d.between(1, 9)); },
    [](ModelSpec& s, Draw&) { s.attention.scaled_by_layer = true; },
    [](ModelSpec& s, Draw&) { s.embedding_multiplier = 2; },
    [](ModelSpec& s, Draw&) { s.residual_multiplier = 0.5F; },
    [](ModelSpec& s, Draw&) { s.logit_multiplier = 0.5F; },
    [](ModelSpec& s, Draw&) { s.embedding_unit = true; },
    [](ModelSpec& s, Draw& d) { s.hidden_layers = d.between(2, 3); },
    [](ModelSpec& s, Draw& d) {
      if (s.architecture != Architecture::decoder || s.gated || s.experts.count > 0) return;
      s.channel_mix = d.of<ChannelMix>({ChannelMix::rwkv4, ChannelMix::rwkv7});
    },
    [](ModelSpec& s, Draw& d) { s.segments = d.between(0, 3); },
    [](ModelSpec& s, Draw& d) {
      AttentionSpec& a = s.attention;
      a.kv_heads = a.heads;
      a.head_sizes.clear();
      for (int64_t h = 0; h < a.heads; ++h) a.head_sizes.push_back(d.between(1, 9));
      a.d_qk = a.d_vo = *std::ranges::max_element(a.head_sizes);
    },
    [](ModelSpec& s, Draw& d) {
      s.attention.kv_heads = s.attention.heads;
      s.attention.shared_query_key = d.of<std::vector<int64_t>>({{1}, {0, 1}, {1, 1, 0}});
      if (d.chance(0.5)) {
        s.attention.hashing = hashes(d, 6);
        s.attention.hashing.same_bucket = d.chance(0.5);
      }
    },
    [](ModelSpec& s, Draw& d) {
      s.attention.kv_heads = s.attention.heads;
      s.attention.ring = {.chunk = d.between(1, 6), .before = d.between(0, 2), .after = d.between(0, 2)};
      s.attention.patterns.clear();
    },
    [](ModelSpec& s, Draw&) {
      s.attention.kv_heads = s.attention.heads;
      s.attention.cross_linear = true;
    },
    [](ModelSpec& s, Draw& d) {
      RandomFeaturesMixer m;
      m.heads = divisor_of(std::gcd(s.width, s.encoder_spec().width), d, 8);
      m.unit = d.chance(0.5);
      m.map = m.unit ? RandomMap::fourier : RandomMap::positive;
      if (!m.unit && s.architecture == Architecture::encoder) m.epsilon = 1e-4F;
      s.mixer = m;
      s.mixer.derive(s.width);
      leave_attention(s);
    },
    [](ModelSpec& s, Draw& d) {
      s.mixer = MixerSpec::of(from_name<MixerKind>(d.of<std::string>(names_of<MixerKind>())));
      s.mixer.derive(s.width);
      leave_attention(s);
    },
    [](ModelSpec& s, Draw& d) {
      const int64_t heads = divisor_of(std::gcd(s.width, s.encoder_spec().width), d, 8);
      const auto features = from_name<FeatureMap>(d.of<std::string>(names_of<FeatureMap>()));
      const bool positive = features == FeatureMap::elu || features == FeatureMap::shares;
      if (s.architecture == Architecture::decoder && d.chance(0.5))
        s.mixer = DeltaRuleMixer{heads, features};
      else
        s.mixer = LinearAttentionMixer{heads, features, positive && d.chance(0.5)};
      leave_attention(s);
    },
    [](ModelSpec& s, Draw&) { s.attention.dropout = s.residual_dropout = s.embedding_dropout = 0.125F; },
    [](ModelSpec& s, Draw& d) {
      if (s.architecture == Architecture::decoder && s.output == Output::tokens) s.memory = d.between(1, 9);
    },
    [](ModelSpec& s, Draw& d) {
      if (s.architecture == Architecture::encoder_decoder && !s.features.any())
        s.source_vocab_size = d.between(1, 40);
    },
    [](ModelSpec& s, Draw& d) {
      if (s.architecture != Architecture::encoder_decoder || s.recurrence.any()) return;
      s.encoder.heads = d.of<int64_t>({1, 2, 3, 5});
      s.encoder.width = s.encoder.heads * d.between(1, 7);
      s.encoder.hidden = d.between(1, 30);
      s.attention.kv_heads = s.attention.heads;
    },
};

// Gives some layers blocks with changes of their own, where that makes sense.
void mix_layers(ModelSpec& s, Draw& d) {
  for (int i = 0; i < 10; ++i) {
    ModelSpec other = s, mixed = s;
    for (int64_t n = d.between(1, 4); n > 0; --n) kChanges[d.between(0, std::ssize(kChanges) - 1)](other, d);
    other.attention.heads = d.chance(0.5) ? s.attention.heads : d.of<int64_t>({1, 2, 3, 5});
    if (other.attention.heads != s.attention.heads) other.attention.kv_heads = other.attention.heads;
    if (d.chance(0.3)) {
      other = s;
      other.attention.reused_keys = true;
    }
    other.norm_placement = s.norm_placement;
    other.branches = s.branches;
    mixed.kinds = {{"other", other}};
    if (s.architecture == Architecture::encoder_decoder && d.chance(0.5))
      mixed.encoder_layer_kinds =
          d.of<std::vector<std::string>>({{"other"}, {"other", kDefaultKind}, {kDefaultKind, "other"}});
    mixed.layer_kinds = d.of<std::vector<std::string>>(
        {{"other"}, {"other", kDefaultKind}, {kDefaultKind, "other"}, {kDefaultKind, "other", "other"}});
    try {
      check_spec(mixed);
      s = mixed;
      return;
    } catch (const Error&) {  // draw another
    }
  }
}

}  // namespace

// A few of them.
void vary(ModelSpec& s, Draw& d, int64_t most) {
  for (int64_t i = d.between(0, most); i > 0; --i) kChanges[d.between(0, std::ssize(kChanges) - 1)](s, d);
  if (most > 0 && s.layers > 1 && d.chance(0.15)) mix_layers(s, d);
}

}  // namespace qkv::testing

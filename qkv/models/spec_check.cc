#include <algorithm>
#include <utility>

#include "qkv/base/error.h"
#include "qkv/models/spec.h"
#include "qkv/models/spec_schema.h"

namespace qkv {

namespace {

void check_rotary(const ModelSpec& s) {
  const RotarySpec& r = s.attention.rotary;
  check((s.positions == Positions::rotary) == (r.width > 0), "model: positions {}: rotary_width is {}",
        name_of(s.positions), r.width);
  check(r.turned % 2 == 0 && r.turned <= r.width && (r.turned == 0 || s.grid == 0),
        "model: rotary_turned must be even and at most rotary_width {}, of positions in a row; got {}",
        r.width, r.turned);
  if (r.width == 0) return;
  check(r.width % 2 == 0 && r.width <= s.attention.d_qk,
        "model: rotary_width must be even and at most d_qk {}, got {}", s.attention.d_qk, r.width);
  check(r.base > 1 && r.base < 1e12, "model: rotary_base must be between 1 and 1e12, got {}", r.base);
  check(r.magnitude > 0 && r.magnitude < 1e3, "model: rotary magnitude must be positive, got {}",
        r.magnitude);
  const bool borders = r.scaling == RotaryScaling::yarn || r.scaling == RotaryScaling::llama3;
  const bool no_ramp = r.scaling == RotaryScaling::llama3 && r.low == r.high;
  check(!borders || (r.low > 0 && (r.low < r.high || no_ramp)),
        "model: rotary_low {} must be below rotary_high {}", r.low, r.high);
  check(r.scaling == RotaryScaling::none || r.scaling == RotaryScaling::linear || r.original_context > 0,
        "model: rotary_scaling {} needs the original context", name_of(r.scaling));
  check(r.scaling != RotaryScaling::dynamic || r.width > 2,
        "model: rotary_scaling dynamic needs a width above 2");
  const bool of_pairs = r.scaling == RotaryScaling::longrope;
  for (const auto& [key, factors] :
       {std::pair("rotary_short_factors", r.short_factors), {"rotary_long_factors", r.long_factors}}) {
    check(of_pairs ? std::ssize(factors) == r.width / 2 : factors.empty(),
          "model: {}: rotary_scaling {} has {} factors, got {}", key, name_of(r.scaling),
          of_pairs ? r.width / 2 : 0, factors.size());
  }
}

// A mixer and what places its tokens.
void check_mixer(const ModelSpec& s) {
  s.mixer.check(s);
  if (s.mixer.attends() || !s.has_blocks()) return;
  check(!is_of_blocks(s.positions) || s.positions == Positions::none,
        "model: positions {}: of attention, but the mixer is {} (learned, sinusoidal or none may stand "
        "beside it)",
        name_of(s.positions), name_of(s.mixer.kind()));
  check(!s.attention.relative.on(), "model: relative_attention {}: the mixer is {}",
        name_of(s.attention.relative.kind), name_of(s.mixer.kind()));
  check(s.memory == 0, "model: memory: of attention, but the mixer is {}", name_of(s.mixer.kind()));
}

// RWKV's feed-forward networks remember the last row.
void check_channel_mix(const ModelSpec& s) {
  if (s.channel_mix == ChannelMix::none) return;
  const std::string mix = name_of(s.channel_mix);
  check(s.architecture == Architecture::decoder && s.has_blocks() && s.order == Order::stack && s.hidden > 0,
        "model: channel_mix {}: of the feed-forward networks of a decoder in the order stack", mix);
  check(!s.gated && s.experts.count == 0, "model: channel_mix {} does not go with gated or experts", mix);
}

void check_head_sizes(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  if (a.head_sizes.empty()) return;
  check(std::ssize(a.head_sizes) == a.heads, "model: head_sizes: {} of {} heads", a.head_sizes.size(),
        a.heads);
  const auto [least, most] = std::minmax_element(a.head_sizes.begin(), a.head_sizes.end());
  check(a.d_qk == *most && a.d_vo == *most,
        "model: head_sizes say the width of a head: d_qk and d_vo must "
        "be the widest's {}, got {} and {}",
        *most, a.d_qk, a.d_vo);
  check(a.kv_heads == a.heads,
        "model: head_sizes: heads of different sizes share no keys, kv_heads must be {}", a.heads);
  check(a.rotary.width <= *least,
        "model: head_sizes: rotary_width must be at most the narrowest's {}, got {}", *least, a.rotary.width);
  check(a.query_key_norm == QueryKeyNorm::none,
        "model: head_sizes: query_key_norm {} is of heads of one size", name_of(a.query_key_norm));
  check(!a.relative.on(), "model: head_sizes: relative_attention {} has vectors of one size",
        name_of(a.relative.kind));
  check(!a.global_projections, "model: head_sizes: global_projections are of heads of one size");
}

void check_relative(const ModelSpec& s) {
  const RelativeSpec& r = s.attention.relative;
  const std::string kind = name_of(r.kind);
  check(r.on() || r == RelativeSpec(), "model: relative_attention none: nothing more can be said of it");
  if (!r.on()) return;
  check(s.positions != Positions::rotary && s.positions != Positions::relative &&
            s.positions != Positions::toeplitz && !is_alibi(s.bias()) && s.distance_bias == Positions::none,
        "model: relative_attention {}: positions {} tell distances, too", kind, name_of(s.bias()));
  check(s.attention.cap == 0, "model: relative_attention {}: attention_cap would leave its terms out", kind);
  check(s.order != Order::prefix,
        "model: relative_attention {}: a decoder's vectors are of keys before the query, of order prefix "
        "others "
        "are seen, too",
        kind);
  const bool xl = r.kind == RelativeAttention::transformer_xl,
             apart = r.kind == RelativeAttention::disentangled;
  const int64_t least = xl ? 0 : apart ? 2 : 1;
  check(r.distance >= least, "model: relative_attention_distance must be at least {}, got {}", least,
        r.distance);
  check(!xl || s.width % 2 == 0, "model: relative_attention {}: width must be even, got {}", kind, s.width);
  check(!r.segments || (xl && s.architecture == Architecture::encoder),
        "model: relative_attention_segments: of transformer_xl in an encoder, not {} in {}", kind,
        name_of(s.architecture));
  check(apart || (r.buckets == 0 && r.by_content && r.by_position && !r.shared_projections && !r.normed),
        "model: relative_attention {}: buckets, terms, shared and norm are of disentangled", kind);
  check(r.by_content || r.by_position, "model: relative_attention {}: one of its terms must stay", kind);
  check(r.buckets == 0 || (r.buckets >= 4 && r.buckets / 2 < r.distance - 1),
        "model: relative_attention_buckets must be between 4 and {}, got {}", 2 * r.distance - 3, r.buckets);
}

void check_distance_bias(const ModelSpec& s) {
  using enum Positions;
  const bool of_distance = s.positions == relative || s.positions == toeplitz || is_alibi(s.positions);
  check(s.distance_bias == none || s.distance_bias == relative || s.distance_bias == toeplitz ||
            is_alibi(s.distance_bias),
        "model: distance_bias: {} positions are no biases (relative, toeplitz and alibi are)",
        name_of(s.distance_bias));
  check(s.distance_bias == none || !of_distance, "model: distance_bias {}: positions {} are a bias already",
        name_of(s.distance_bias), name_of(s.positions));
  check(s.distance_bias == none || s.mixer.attends(), "model: distance_bias: the mixer is {}",
        name_of(s.mixer.kind()));
  check(!s.relative_by_layer || s.bias() == relative || s.bias() == toeplitz,
        "model: relative_by_layer: of relative and toeplitz positions, not {}", name_of(s.bias()));
}

void check_query_growth(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  check(a.query_growth != 0 || (a.query_growth_every == 8192 && a.query_growth_from == 0),
        "model: query_growth is 0: nothing more can be said of it");
  check(a.query_growth == 0 || (a.head_sizes.empty() && a.shared_query_key.empty() && !a.relative.on()),
        "model: query_growth does not go with head_sizes, shared_query_key or relative_attention");
  check(a.query_growth == 0 || s.mixer.get_if<AttentionMixer>() != nullptr,
        "model: query_growth: the mixer is {}", name_of(s.mixer.kind()));
}

void check_values(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  check(a.key_bias || (a.bias && a.shared_query_key.empty() && s.mixer.get_if<AttentionMixer>() != nullptr),
        "model: attention_key_bias: of keys beside queries and values that have a bias");
  check(!a.rotary.values || (a.rotary.width > 0 && a.d_qk == a.d_vo && a.shared_query_key.empty() &&
                             s.mixer.get_if<AttentionMixer>() != nullptr),
        "model: rotary_values: of rotary positions, values as wide as keys, and the mixer attention");
  const auto plain = [&](const char* field) {
    check(s.mixer.get_if<AttentionMixer>() != nullptr, "model: {}: the mixer is {}", field,
          name_of(s.mixer.kind()));
    check(a.head_sizes.empty() && a.shared_query_key.empty() && !a.global_projections,
          "model: {} does not go with head_sizes, shared_query_key or global_projections", field);
  };
  if (a.value_norm) plain("value_norm");
  check(!a.value_norm || !a.rotary.values, "model: value_norm: of values that are not rotated");
  if (a.values_of_keys) {
    plain("values_of_keys");
    check(a.d_qk == a.d_vo && a.key_bias && !a.rotary.values,
          "model: values_of_keys: values are as wide as keys, which have the same bias, and are not rotated");
  }
  if (a.gated) {
    plain("attention_gate");
    check(!a.relative.on(), "model: attention_gate does not go with relative_attention");
  }
  if (!a.reused_keys) return;
  plain("reused_keys");
  check(!a.relative.on() && s.memory == 0 && s.layer_groups == 0,
        "model: reused_keys does not go with relative_attention, memory or layer_groups");
}

// Inputs of blocks beside the stream, and factors on what leaves them.
void check_layer_inputs(const ModelSpec& s) {
  using enum NormPlacement;
  const bool sums = s.norm_placement != post && s.norm_placement != stream && s.branches == Branches::serial;
  check(!s.block_scaled || sums, "model: block_scaled: of blocks with branches {} and norm {}",
        name_of(s.branches), name_of(s.norm_placement));
  if (s.layer_input_width == 0) return;
  check(sums, "model: layer_input_width: of blocks with branches {} and norm {}", name_of(s.branches),
        name_of(s.norm_placement));
  check(s.architecture != Architecture::encoder_decoder && !s.features.any(),
        "model: layer_input_width: of one stack that reads tokens");
  check(s.activation != Activation::xielu, "model: activation xielu: of the blocks' networks alone");
}

void check_first_position(const ModelSpec& s) {
  check(
      s.first_position == 0 ||
          ((s.positions == Positions::learned || s.positions == Positions::sinusoidal_closed) && s.grid == 0),
      "model: first_position: of learned or sinusoidal_closed positions in a row, not of {}",
      name_of(s.positions));
}

void check_grid(const ModelSpec& s) {
  check(s.position_base == 10000 || s.positions == Positions::sinusoidal ||
            s.positions == Positions::sinusoidal_halves || s.positions == Positions::sinusoidal_closed,
        "model: position_base: of sinusoidal, sinusoidal_halves and sinusoidal_closed positions, not of {}",
        name_of(s.positions));
  check(s.grid >= 0 && s.grid <= s.context, "model: grid must be between 0 and context {}, got {}", s.context,
        s.grid);
  check(s.axial_width >= 0 && (s.axial_width == 0 || (s.grid > 0 && s.positions == Positions::learned)),
        "model: axial_width: of learned positions in a grid, not of {}{}", name_of(s.positions),
        s.grid == 0 ? " in a row" : "");
  if (s.grid == 0) return;
  check(s.axial_width < s.width, "model: axial_width must be below width {}, got {}", s.width, s.axial_width);
  check(s.axial_width == 0 || !s.embedding_projected_last,
        "model: axial_width does not go with embedding_projected_last");
  const bool rotary = s.positions == Positions::rotary;
  check(rotary || s.positions == Positions::learned || s.positions == Positions::sinusoidal,
        "model: grid: positions {} have one dimension (learned, sinusoidal and rotary may have two)",
        name_of(s.positions));
  const int64_t width = s.embedding_projected_last ? s.embedding_width : s.width;
  check(s.positions != Positions::sinusoidal || width % 4 == 0,
        "model: grid: sinusoidal positions need a width divisible by 4, got {}", width);
  check(!rotary || (s.attention.rotary.width % 4 == 0 && s.attention.rotary.scaling == RotaryScaling::none),
        "model: grid: rotary positions need a rotary_width divisible by 4 and no scaling, got {} and {}",
        s.attention.rotary.width, name_of(s.attention.rotary.scaling));
}

// Checks a spec whose attention cuts texts into chunks. `key`: the key that asks for them.
void check_chunks(const ModelSpec& s, const char* key) {
  const AttentionSpec& a = s.attention;
  check(s.order == Order::stack && s.memory == 0 && s.features.kind == FeatureSpec::Kind::none,
        "model: {} goes with plain texts: not with order {}, memory or features", key, name_of(s.order));
  check(!a.sinks && a.cap == 0 && a.query_growth == 0 && !a.reused_keys && s.mtp.layers == 0,
        "model: {} does not go with attention_sinks, attention_cap, query_growth, reused_keys and mtp_layers",
        key);
  check(s.positions == Positions::rotary || s.positions == Positions::none || !is_of_blocks(s.positions),
        "model: {} does not go with positions {}, which are added to scores", key, name_of(s.positions));
  check(s.distance_bias == Positions::none,
        "model: {} does not go with distance_bias {}, which is added to scores", key,
        name_of(s.distance_bias));
}

void check_ring(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  check(a.ring.chunk > 0 || a.ring == HashedAttention{},
        "model: ring_before and ring_after have no effect without ring_beyond");
  if (a.ring.chunk == 0) return;
  check(s.architecture == Architecture::encoder,
        "model: ring_beyond is for encoders: a decoder has patterns = [\"block {} neighbours 1\"]",
        a.ring.chunk);
  check(std::ranges::find(a.shared_query_key, 0) != a.shared_query_key.end() || a.shared_query_key.empty(),
        "model: ring_beyond: all layers have a shared_query_key, and none is left for it");
  check_chunks(s, "ring_beyond");
  check(a.patterns.empty() && !a.global_projections && a.head_sizes.empty() && a.kv_heads == a.heads &&
            !a.relative.on(),
        "model: ring_beyond does not go with patterns, head_sizes, kv_heads, global_projections and "
        "relative_attention");
}

void check_cross_linear(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  if (!a.cross_linear) return;
  check(
      s.architecture == Architecture::encoder_decoder && s.recurrence.decoder == Cell::none,
      "model: cross_linear: only an encoder-decoder whose decoder has blocks of attention reads a source so");
  check(a.kv_heads == a.heads && a.head_sizes.empty() && a.cap == 0 && !a.sinks,
        "model: cross_linear does not go with kv_heads, head_sizes, attention_cap and attention_sinks");
}

void check_hashing(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  int64_t buckets = 1;
  for (const int64_t n : a.hashing.buckets) {
    check(n % 2 == 0, "model: hash_buckets: expected even factors, got {}", n);
    check(n <= (1 << 20) / buckets, "model: hash_buckets: more than {} buckets", 1 << 20);
    buckets *= n;
  }
  check(!a.hashing.buckets.empty(), "model: hash_buckets: expected a number of buckets");
  check(s.architecture != Architecture::encoder_decoder,
        "model: hashed_beyond is for encoders and for decoders, not for an encoder-decoder");
  check_chunks(s, "hashed_beyond");
  const int64_t patterns = std::max<int64_t>(1, std::ssize(a.patterns));
  for (int64_t l = 0; l < patterns * std::ssize(a.shared_query_key) && !a.patterns.empty(); ++l)
    check(!a.shares_query_key(l) || !a.patterns[l % patterns].any(),
          "model: patterns: a layer that hashes its keys has none, but layer {} has one", l);
}

void check_shared_query_key(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  check(a.hashing.chunk > 0 || a.hashing == HashedAttention{},
        "model: hash_rounds, hash_buckets and their kin have no effect without hashed_beyond");
  check(a.hashing.chunk == 0 || !a.shared_query_key.empty(),
        "model: hashed_beyond: no layer has a shared_query_key");
  if (a.shared_query_key.empty()) return;
  if (a.hashing.chunk > 0) check_hashing(s);
  check(a.kv_heads == a.heads,
        "model: shared_query_key: each head's keys are its queries, kv_heads must be {}, got {}", a.heads,
        a.kv_heads);
  check(a.head_sizes.empty() && !a.global_projections,
        "model: shared_query_key does not go with head_sizes or global_projections");
  check(a.query_key_norm == QueryKeyNorm::none, "model: shared_query_key: keys have a norm already, not {}",
        name_of(a.query_key_norm));
  check(!a.relative.on(), "model: shared_query_key: relative_attention {} tells queries and keys apart",
        name_of(a.relative.kind));
  check(s.order != Order::permuted,
        "model: shared_query_key: order permuted reads a token twice, neither of which is itself");
  check(s.layer_groups == 0 || a.shared_query_key.size() == 1,
        "model: layer_groups: layers with and without a shared_query_key do not share weights");
}

void check_memory(const ModelSpec& s) {
  if (s.memory == 0) return;
  check(s.architecture == Architecture::decoder && s.order == Order::stack && s.output == Output::tokens,
        "model: memory: what is remembered are the tokens before those of a decoder that reads in order");
  check(s.longest() > s.context || s.positions == Positions::none,
        "model: memory: positions {} are counted from a window's begin, which what was remembered is before "
        "(relative, toeplitz, rotary, alibi, none and relative_attention tell distances)",
        name_of(s.positions));
  check(s.grid == 0, "model: memory: the tokens before a window do not fill rows of a grid");
  check(s.attention.query_growth == 0,
        "model: memory: query_growth counts positions from a window's begin, which what was remembered is "
        "before");
  check(s.channel_mix == ChannelMix::none, "model: memory does not go with channel_mix {}",
        name_of(s.channel_mix));
}

void check_global_projections(const ModelSpec& s) {
  const AttentionSpec& a = s.attention;
  if (!a.global_projections) return;
  check(s.architecture == Architecture::encoder, "model: global_projections needs an encoder, not {}",
        name_of(s.architecture));
  check(!a.patterns.empty(), "model: global_projections: there are no patterns beside which tokens see all");
  check(
      a.rotary.width == 0 && !a.relative.on() && a.query_key_norm == QueryKeyNorm::none && a.cap == 0 &&
          a.clip == 0 && !a.sinks && a.query_growth == 0 && s.bias() != Positions::relative &&
          s.bias() != Positions::toeplitz && !is_alibi(s.bias()),
      "model: global_projections: what is done to other queries and scores (rotary, relative, alibi, norms, "
      "clips, caps, sinks) would not be done to theirs");
}

void check_pattern(const Pattern& p, Architecture architecture) {
  if (p == Pattern()) return;
  const std::string text = text_of(p);
  constexpr int64_t kMost = int64_t{1} << 40;
  for (const int64_t n : {p.window, p.stride, p.global, p.block, p.neighbours, p.summary, p.beyond})
    check(n >= 0 && n <= kMost, "model: patterns: '{}': numbers must be between 0 and 2^40", text);
  check(p.any(), "model: patterns: '{}' shows no key", text);
  check(p.dilation >= 1 && p.dilation <= 1 << 20 && (p.dilation == 1 || p.window > 0),
        "model: patterns: '{}': dilated is of a window, and at least 1", text);
  check(
      p.block > 0 || (p.neighbours == 0 && p.summary == 0 && !p.ends && p.random == 0 && p.first_block == 1),
      "model: patterns: '{}': neighbours, summary, ends, random and first_block are of blocks", text);
  check(p.neighbours <= kMost / std::max<int64_t>(1, p.block),
        "model: patterns: '{}': neighbours reach beyond 2^40 tokens", text);
  check(p.summary <= p.block, "model: patterns: '{}': a block has no {} last keys", text, p.summary);
  check(p.random >= 0 && p.random <= 1024, "model: patterns: '{}': random must be between 0 and 1024", text);
  check(p.beyond == 0 || architecture == Architecture::encoder,
        "model: patterns: '{}': beyond: what a token sees must not change as its sequence grows", text);
  check(p.first_block >= 1 && p.first_block <= 1025 &&
            (p.first_block == 1 || (p.ends && architecture == Architecture::encoder)),
        "model: patterns: '{}': first_block counts an encoder's first block, of ends", text);
}

void check_blocks(const ModelSpec& s) {
  check(s.embedding_width == 0 || !s.recurrence.any(), "model: embedding_width does not go with recurrences");
  check(!s.embedding_projected_last || s.embedding_width > 0,
        "model: embedding_projected_last: there is no embedding_width to project from");
  check(s.hidden > 0 || (s.experts.count == 0 && s.layer_input_width == 0 && s.branches == Branches::serial),
        "model: hidden 0: blocks of attention alone have no experts or inputs of their own, and are serial");
  check(s.hidden > 0 || (!s.gated && s.hidden_layers == 1),
        "model: gated, hidden_layers: of feed-forward networks, which blocks with hidden = 0 lack");
  check(s.layer_groups <= s.layers, "model: layer_groups must be between 0 and {} layers, got {}", s.layers,
        s.layer_groups);
  check(s.layer_groups == 0 || s.architecture != Architecture::encoder_decoder,
        "model: layer_groups: layers of two stacks do not share weights");
  const AttentionSpec& a = s.attention;
  const bool batch = s.normalization == Normalization::batch;
  check(!batch || s.head_width == 0,
        "model: normalization batch: a head's rows are a few of the batch's tokens");
  check(!batch || !a.relative.normed,
        "model: normalization batch: relative_norm is of distances, not of tokens");
  check(!batch || s.layer_groups == 0,
        "model: normalization batch: layers that share weights would share what each has seen");
  check(!s.embedding_unit || s.recurrence.decoder == Cell::none,
        "model: embedding_unit does not go with a recurrent decoder");
  const bool reversible = s.branches == Branches::reversible;
  check(!reversible || (s.norm_placement != NormPlacement::post && s.norm_placement != NormPlacement::stream),
        "model: branches reversible: {}-norms would change the stream that a branch is added to",
        name_of(s.norm_placement));
  check(s.final_norm || (s.norm_placement != NormPlacement::post && s.norm_placement != NormPlacement::none),
        "model: final_norm: with norm {} there is no norm at the end that could be left out",
        name_of(s.norm_placement));
  check(!reversible || !s.tied || s.output != Output::tokens || s.embedding_width > 0 || s.head_width > 0,
        "model: branches reversible: the unembedding reads both streams, {} columns: tied must be false",
        s.output_width());
  check(s.branches == Branches::serial || reversible || s.norm_placement == NormPlacement::pre,
        "model: branches {}: parallel branches read through pre-norms, not {}", name_of(s.branches),
        name_of(s.norm_placement));
  check(s.branches == Branches::serial || s.architecture != Architecture::encoder_decoder,
        "model: branches {}: a block that also reads a source has its branches in turn", name_of(s.branches));
  check(a.patterns.empty() || s.order == Order::stack,
        "model: patterns: order {} already says which tokens a token sees", name_of(s.order));
  for (const Pattern& p : a.patterns) check_pattern(p, s.architecture);
  check(s.bias() != Positions::alibi_scaled || !a.scaled_by_layer,
        "model: positions alibi_scaled: scores of all layers are scaled alike");
  check(!is_alibi(s.bias()) || s.order != Order::permuted,
        "model: order permuted reads a token twice, which distances cannot tell");
  check(s.logit_multiplier == 1 || (s.head_width == 0 && !s.unembedding_bias),
        "model: logit_multiplier does not go with head_width or unembedding_bias");
  for (const auto& [key, m] : {std::pair("embedding_multiplier", s.embedding_multiplier),
                               {"residual_multiplier", s.residual_multiplier},
                               {"logit_multiplier", s.logit_multiplier}})
    check(m != 0, "model: {} must not be 0", key);
}

void check_experts(const ModelSpec& s) {
  const ExpertsSpec& e = s.experts;
  if (e.count == 0) {
    check(e == ExpertsSpec(), "model: there are no experts that expert keys could speak of");
    return;
  }
  const auto within = [](const char* field, int64_t n, int64_t least, int64_t most) {
    check(n >= least && n <= most, "model: {} must be between {} and {}, got {}", field, least, most, n);
  };
  check(s.layers * e.count <= 1 << 20, "model: {} experts in {} layers are more than {}", e.count, s.layers,
        1 << 20);
  within("experts_chosen", e.chosen, 1, e.count);
  check(e.hidden > 0, "model: expert_hidden must be at least 1, got 0");
  within("expert_first", e.first, 0, s.layers - 1);
  within("expert_groups", e.groups, 1, e.count);
  within("expert_groups_chosen", e.chosen_groups, 1, e.groups);
  check(e.count % e.groups == 0, "model: {} experts are not divisible by {} expert_groups", e.count,
        e.groups);
  check(e.chosen_groups * (e.count / e.groups) >= e.chosen,
        "model: {} experts_chosen are more than {} expert_groups_chosen have", e.chosen, e.chosen_groups);
  check(!e.shared_gated || e.shared_hidden > 0, "model: shared_gated: there is no shared network");
  check(s.activation != Activation::xielu, "model: activation xielu: experts have no numbers of their own");
  check(s.layer_groups == 0 || (e.first == 0 && e.every == 1),
        "model: layer_groups: layers with and without experts do not share weights");
  check(s.hidden_layers == 1, "model: hidden_layers: experts have one hidden layer, not {}", s.hidden_layers);
}

void check_recurrence(const ModelSpec& s) {
  const RecurrenceSpec& r = s.recurrence;
  const bool two_stacks = s.architecture == Architecture::encoder_decoder;
  check(two_stacks || (!r.any() && !s.source_reversed),
        "model: {} needs architecture encoder_decoder, not {}", r.any() ? "a recurrence" : "reverse_source",
        name_of(s.architecture));
  check(s.has_blocks() || s.positions == Positions::none, "model: positions {}: recurrences have none",
        name_of(s.positions));
  check(!r.bidirectional || r.encoder != Cell::none, "model: bidirectional: the encoder is no recurrence");
  check(!r.bidirectional || s.width % 2 == 0, "model: bidirectional: width must be even, got {}", s.width);
  check(r.decoder != Cell::none || r.attention == SourceAttention::none,
        "model: source_attention {}: the decoder is no recurrence", name_of(r.attention));
  check(r.decoder == Cell::none || r.encoder != Cell::none || r.attention != SourceAttention::none,
        "model: source_attention none: an encoder of attention leaves no last state to begin with");
  check(r.attention != SourceAttention::dot || s.width <= 576,
        "model: source_attention dot: width must be at most 576, got {}", s.width);
}

// Something tells an encoder's blocks the order of tokens.
void check_order(const ModelSpec& s) {
  const auto tells_order = [](const BlockSpec* b) {
    return b->positions != Positions::none || b->attention.relative.on() || b->mixer.knows_order();
  };
  check(!s.has_blocks() || (s.architecture == Architecture::decoder && s.order == Order::stack) ||
            std::ranges::any_of(s.blocks_in_use(), tells_order),
        "model: positions none: an encoder's attention cannot tell the order of tokens without");
}

void check_features(const ModelSpec& s) {
  const FeatureSpec& f = s.features;
  check(f.any() || f == FeatureSpec(), "model: there are no features that a shape could be of");
  if (!f.any()) return;
  check(f.channels >= 1, "model: features have at least one channel");
  check(s.source_vocab_size == 0 && !s.recurrence.any() && s.segments == 0 && s.embedding_width == 0,
        "model: features do not go with segments, an embedding_width, recurrences or a source vocabulary");
  if (f.kind == FeatureSpec::Kind::frames) {
    check(s.architecture == Architecture::encoder_decoder && s.stacks_apart,
          "model: frames are read by an encoder beside a decoder, each with positions of its own");
    check(f.patch == 0 && f.image == 0 && !f.distilled, "model: frames have no patches");
    return;
  }
  check(s.architecture == Architecture::encoder && s.output != Output::tokens,
        "model: patches of images are read by an encoder, whose output is no tokens");
  check(f.patch >= 1 && f.image >= f.patch && f.image % f.patch == 0,
        "model: images of {} pixels are not cut into patches of {}", f.image, f.patch);
  check(f.channels * f.patch * f.patch <= 1 << 20, "model: a patch has more than {} numbers", 1 << 20);
  check(s.context == f.patches() + s.vocab_size,
        "model: {} patches and {} tokens before them do not make a context of {}", f.patches(), s.vocab_size,
        s.context);
  check(!f.distilled || (s.vocab_size >= 2 && s.output == Output::sequence_classes && !s.pooler &&
                         s.pooling == Pooling::first),
        "model: a distillation token is the second of a classifier that pools the first");
}

void check_mtp(const ModelSpec& s) {
  if (!s.mtp.any()) return;
  check(s.architecture == Architecture::decoder && s.order == Order::stack && s.output == Output::tokens,
        "model: mtp_layers: multi-token prediction is of decoders that predict tokens, in the order stack");
  check(
      s.memory == 0 && s.layer_input_width == 0 && !s.embedding_projected_last &&
          s.branches != Branches::reversible,
      "model: mtp_layers does not go with memory, layer_input_width, embedding_projected_last or reversible "
      "branches");
  const AttentionSpec& a = s.block(s.layers - 1).attention;
  check(!a.reused_keys, "model: mtp_layers does not go with reused_keys in the last layer");
}

void check_encoder(const ModelSpec& s) {
  const EncoderShape& e = s.encoder;
  check(e.context == 0 || s.features.any() || (s.stacks_apart && s.positions == Positions::learned),
        "model: an encoder's context of its own is of features, or of learned positions in stacks_apart");
  check(e.expert_every > 0 || e.expert_first == 0,
        "model: encoder_expert_first {}: needs an encoder_expert_every", e.expert_first);
  check(e.expert_every == 0 ||
            (s.experts.count > 0 && (e.expert_every != s.experts.every || e.expert_first != s.experts.first)),
        "model: encoder_expert_every {}: of experts, where another than the decoder's", e.expert_every);
  if (!e.any()) return;
  check(s.architecture == Architecture::encoder_decoder && !s.recurrence.any(),
        "model: encoder_width, encoder_heads, encoder_hidden and encoder_expert_every are of an "
        "encoder_decoder of blocks");
  check(e.width == 0 || s.embedding_width == 0, "model: encoder_width does not go with embedding_width");
  if (!s.encoder_layer_kinds.empty()) return check_spec(s.part(Architecture::encoder));
  ModelSpec blocks = s.encoder_spec();
  blocks.layers = std::max(s.layers, s.encoder_layers);  // an expert_first may be of either stack
  blocks.tied = false;                                   // the unembedding is the decoder's
  check((e.width == 0 && e.heads == 0) || blocks.width % blocks.attention.heads == 0,
        "model: encoder_width {} is not divisible by {} heads", blocks.width, blocks.attention.heads);
  check_spec(blocks);
}

void check_fields(const ModelSpec& s, const ModelSpec& whole);

// Layers that differ: each kind makes sense as that of all layers, and has in common with the others what the
// stacks and the embeddings know of blocks.
void check_kinds(const ModelSpec& s) {
  const bool of_encoder = !s.encoder_layer_kinds.empty();
  check(s.kinds.empty() || !s.layer_kinds.empty() || of_encoder,
        "model: kind.{}: no layer has it: layer_kinds is empty", s.kinds.empty() ? "" : s.kinds[0].name);
  check(!of_encoder || s.architecture == Architecture::encoder_decoder,
        "model: encoder_layer_kinds: {} has one stack, whose layers are layer_kinds",
        name_of(s.architecture));
  if (s.layer_kinds.empty() && !of_encoder) return;
  constexpr int64_t kMostNames = 4096;
  std::vector<std::string> named = s.layer_kinds;
  named.insert(named.end(), s.encoder_layer_kinds.begin(), s.encoder_layer_kinds.end());
  check(std::ssize(named) <= kMostNames, "model: layer_kinds: {} names, more than {}", named.size(),
        kMostNames);
  check(!s.recurrence.any() && (!s.encoder.any() || of_encoder),
        "model: layer_kinds does not go with recurrences or an encoder of another shape");
  check(s.encoder.heads == 0 && s.encoder.hidden == 0 && s.encoder.expert_every == 0,
        "model: encoder_heads, encoder_hidden and encoder_expert_every: encoder_layer_kinds say that");
  for (size_t i = 0; i < s.kinds.size(); ++i) {
    const std::string& name = s.kinds[i].name;
    check(name != kDefaultKind, "model: kind.{}: [model] itself describes this kind", name);
    check(is_section_name(name), "model: kind: '{}' is no name of a kind: letters, digits, _ and - are",
          name);
    check(i == 0 || s.kinds[i - 1].name < name, "model: kind.{}: kinds are sorted by their names", name);
    check(std::ranges::find(named, name) != named.end(), "model: kind.{}: layer_kinds names it not", name);
  }
  for (const std::string& name : named)
    check(name == kDefaultKind ||
              std::ranges::any_of(s.kinds, [&](const BlockKind& k) { return k.name == name; }),
          "model: layer_kinds: there is no kind '{}'", name);
  const ExpertsSpec others =
      s.experts.count > 0 ? s.experts : s.experts_in_use();  // routers are reported of all layers together
  for (const BlockKind& k : s.kinds) {
    const auto of_all = [&](const char* field, bool same) {
      check(same, "model: kind.{}: {} must be that of the other layers", k.name, field);
    };
    of_all("norm", k.block.norm_placement == s.norm_placement);
    of_all("branches", k.block.branches == s.branches);
    of_all("positions", k.block.positions == s.positions ||
                            (is_of_blocks(k.block.positions) && is_of_blocks(s.positions)));
    const ExpertsSpec& its = k.block.experts;
    of_all("experts", its.count == 0 || (its.count == others.count && its.chosen == others.chosen &&
                                         its.score == others.score && its.groups == others.groups));
    try {
      const bool of_decoder = !of_encoder || std::ranges::find(s.layer_kinds, k.name) != s.layer_kinds.end();
      // The model as if all its layers were of this kind.
      ModelSpec alike = (of_decoder ? s : s.part(Architecture::encoder)).with_kind(kDefaultKind);
      static_cast<BlockSpec&>(alike) = k.block;
      if (!of_decoder) alike.attention.cross_linear = false;  // the decoder's alone
      check_fields(alike, of_decoder ? s : alike);
    } catch (const Error& e) {
      fail("model: kind.{}: {}", k.name, e.what());
    }
  }
  for (int64_t l = 0; l < s.layers; ++l)
    check(s.kind_of(l) == s.kind_of(s.owner_of(l, s.layers)),
          "model: layer_groups: layers of different kinds do not share weights");
  check(s.architecture != Architecture::encoder_decoder || !s.hashes(),
        "model: hashed_beyond is for encoders and for decoders, not for an encoder-decoder");
}

void check_latents(const ModelSpec& s) {
  const LatentSpec& l = s.latents;
  check(l.any() || l == LatentSpec{},
        "model: latent_width, latent_repeats and their kin have no effect without latents");
  if (!l.any()) return;
  check(s.architecture == Architecture::encoder && s.order == Order::stack && !s.recurrence.any(),
        "model: latents: of an encoder of blocks, in order stack");
  check(s.mixer.get_if<AttentionMixer>() != nullptr && s.kinds.empty() && s.attention.patterns.empty() &&
            s.attention.shared_query_key.empty() && s.attention.ring.chunk == 0 &&
            !s.attention.relative.on() && !s.attention.global_projections && s.attention.rotary.width == 0,
        "model: latents see each other by plain attention: not by another mixer, kinds, patterns, "
        "shared_query_key, ring_beyond, relative_attention or rotary positions");
  check(!is_of_blocks(s.positions) && s.distance_bias == Positions::none,
        "model: latents have no positions: they are the tokens', not {}", name_of(s.bias()));
  check(s.norm_placement == NormPlacement::pre && s.branches == Branches::serial && !s.final_norm &&
            s.normalization != Normalization::batch,
        "model: latents: blocks have norms before serial branches, and none at the end");
  check(s.experts.count == 0 && s.features.kind == FeatureSpec::Kind::none && s.mtp.layers == 0 &&
            s.layer_input_width == 0 && !s.lora.any(),
        "model: latents do not go with experts, features, mtp, layer inputs and adapters");
  check(s.head_width == 0, "model: latents: head_width: what reads the latents is the head");
  check(l.width > 0, "model: latent_width: expected a number above 0");
  for (const auto& [name, c] : {std::pair("in", &l.in), {"out", &l.out}})
    check(
        c->heads > 0 && c->d_qk > 0 && c->d_vo > 0 && c->hidden > 0,
        "model: latent_{0}_heads, latent_{0}_qk, latent_{0}_vo, latent_{0}_hidden: expected numbers above 0",
        name);
}

// Numbers that are not in the range of their field.
struct RangeCheck {
  template <typename T>
  void operator()(const SpecField&, const T&) const {}  // enumerators, switches and texts
  template <typename T, typename U>
  void operator()(const SpecField& f, const T& value, Range<U> range) const {
    const Range<T> of_type = {static_cast<T>(range.least), static_cast<T>(range.most)};
    check(of_type.holds(value), "model: {} must be between {} and {}, got {}", f.name, range.least,
          range.most, value);
  }
  template <typename T>
  void operator()(const SpecField& f, const std::vector<T>& values, Range<T> range) const {
    for (const T& value : values) (*this)(f, value, range);
  }
};

// One block in all layers, and what stands around it. `whole`: the model, in which some layers may have it.
void check_fields(const ModelSpec& s, const ModelSpec& whole) {
  RangeCheck ranges;
  for_each_field(s, ranges);
  const bool two_stacks = s.architecture == Architecture::encoder_decoder;
  check(two_stacks == (s.encoder_layers > 0), "model: encoder_layers must be {}, got {}",
        two_stacks ? "at least 1" : "0 where there is one stack", s.encoder_layers);
  check(s.positions == Positions::learned || s.width >= 2, "model: width must be at least 2 for {} positions",
        name_of(s.positions));
  if (s.bias() == Positions::relative) {
    check(s.relative_distance > s.relative_buckets / 2,
          "model: relative_distance must be at least {}, got {}", s.relative_buckets / 2 + 1,
          s.relative_distance);
  }
  check(!s.stacks_apart || two_stacks, "model: stacks_apart: there is one stack");
  check(s.source_vocab_size == 0 || two_stacks,
        "model: source_vocab_size: a model of one stack reads one vocabulary");
  check(!s.unembedding_scaled || s.head_width == 0, "model: unembedding_scaled does not go with head_width");
  check(!s.head_activation || (s.head_width > 0 && *s.head_activation != s.activation),
        "model: head_activation {}: of a head before the unembedding, where another than the blocks'",
        s.head_activation ? name_of(*s.head_activation) : "");
  check(s.classifier_bias || s.classes() > 0 || s.output == Output::sequence_classes ||
            s.output == Output::token_classes,
        "model: classifier_bias: output {} has no classes", name_of(s.output));
  const int64_t token_width = s.embedding_width > 0 ? s.embedding_width : s.width;
  check(!s.tied || s.head_width == 0 || s.head_width == token_width,
        "model: head_width {} does not fit a tied unembedding of width {}", s.head_width, token_width);
  const bool labelled = s.output == Output::sequence_classes || s.output == Output::token_classes;
  const bool may_be_labelled = s.output == Output::tokens && s.architecture == Architecture::encoder;
  const bool choices = s.problem == Problem::multiple_choice;
  check(labelled && !choices ? !s.labels.empty() : s.labels.empty() || may_be_labelled,
        "model: {} labels for output {}{}", s.labels.size(), name_of(s.output),
        choices ? " of multiple choice" : "");
  check(s.problem == Problem::single_label || (s.output == Output::sequence_classes && !s.features.distilled),
        "model: problem {}: of classes of sequences, not of output {}", name_of(s.problem),
        name_of(s.output));
  check(s.order != Order::prefix || s.architecture == Architecture::decoder,
        "model: order prefix needs a decoder, not {}", name_of(s.architecture));
  check(s.order != Order::permuted || s.architecture == Architecture::encoder,
        "model: order permuted needs an encoder, not {}", name_of(s.architecture));
  check(s.order != Order::permuted || (s.bias() != Positions::relative && s.bias() != Positions::toeplitz),
        "model: order permuted reads a token twice, which relative positions cannot tell");
  const bool of_encoder = s.output == Output::span;
  check(s.output == Output::tokens || s.architecture == Architecture::encoder ||
            (!of_encoder && s.architecture == Architecture::decoder),
        "model: output {} needs an encoder{}, not {}", name_of(s.output), of_encoder ? "" : " or a decoder",
        name_of(s.architecture));
  check(s.output == Output::tokens || s.architecture == Architecture::encoder || s.pooling != Pooling::first,
        "model: pooling first: the first token of a decoder has seen no other");
  check(s.output == Output::tokens || (s.head_width == 0 && !s.unembedding_bias && s.tied),
        "model: output {} has no unembedding", name_of(s.output));
  const bool labelled_tokens = may_be_labelled && !s.labels.empty();
  check(!s.pooler || labelled || s.output == Output::embedding || s.output == Output::span || labelled_tokens,
        "model: output {} has no pooler", name_of(s.output));
  check(s.pooler || s.pooler_activation == Activation::tanh,
        "model: pooler_activation {}: there is no pooler", name_of(s.pooler_activation));
  check(s.pooler || (s.pooler_bias && !s.pooler_norm), "model: pooler_bias, pooler_norm: there is no pooler");
  check(s.head_bias || s.head_width > 0, "model: head_bias: there is no head_width");
  check((s.head_width == 0 || s.activation_of_head() != Activation::xielu) &&
            s.pooler_activation != Activation::xielu,
        "model: activation xielu: of the blocks' networks alone, not of heads and poolers");
  check(s.activation != Activation::xielu || (!s.gated && s.hidden_layers == 1),
        "model: activation xielu: of a network with one hidden layer and no gate");
  check(s.gate_limit == 0 || s.gated, "model: gate_limit: the feed-forward network is not gated");
  check(s.mixer_norm || (s.norm_placement == NormPlacement::pre && s.branches == Branches::serial),
        "model: mixer_norm: of pre-norm blocks whose branches are serial");
  check(s.attention.heads % s.attention.kv_heads == 0, "model: {} heads are not divisible by {} kv_heads",
        s.attention.heads, s.attention.kv_heads);
  check_mixer(s);
  check_rotary(s);
  check_blocks(s);
  check_head_sizes(s);
  check_shared_query_key(s);
  check_ring(s);
  check_cross_linear(s);
  check_distance_bias(s);
  check_query_growth(s);
  check_values(s);
  check_channel_mix(s);
  check_layer_inputs(s);
  check_relative(s);
  check_first_position(s);
  check_grid(s);
  check_memory(s);
  check_global_projections(s);
  check_experts(s);
  check_order(whole);
  check_recurrence(s);
  check_features(s);
  check_latents(s);
}

void check_reused_keys(const ModelSpec& stack, int64_t layers) {
  for (int64_t l = 0; l < layers; ++l)
    check(stack.keys_of(l) >= 0,
          "model: reused_keys: before layer {} no layer with keys of its own has the same attention", l + 1);
}

// Layers of RWKV-7 mix the first layer's values into their own.
void check_first_values(const ModelSpec& s) {
  const auto is_rwkv7 = [&](int64_t l) { return s.block(l).mixer.get_if<Rwkv7Mixer>() != nullptr; };
  for (int64_t l = 1; l < s.layers; ++l)
    check(!is_rwkv7(l) || is_rwkv7(0),
          "model: mixer rwkv7: layer {} reads the values of layer 1, whose mixer is {}", l + 1,
          name_of(s.block(0).mixer.kind()));
}

}  // namespace

void check_spec(const ModelSpec& s) {
  check_fields(s, s);
  check_encoder(s);
  check_kinds(s);
  check_mtp(s);
  check_reused_keys(s, s.layers);
  check_first_values(s);
  if (s.encoder_layers > 0) check_reused_keys(s.encoder_spec(), s.encoder_layers);
}

}  // namespace qkv

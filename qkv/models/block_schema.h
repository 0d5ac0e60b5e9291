// The schema of a BlockSpec: the fields of attention, positions, experts and mixers (spec_schema.h).
#pragma once

#include <concepts>
#include <type_traits>

#include "qkv/models/field_conditions.h"
#include "qkv/models/spec.h"

namespace qkv {

// A Spec, or a constant one.
template <typename T, typename Spec>
concept IsSpec = std::same_as<std::remove_const_t<T>, Spec>;

// Rotary positions.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, RotarySpec>
void for_each_field(Spec& rotary, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "rotary_width",
     .help = "rotary positions: dimensions of each head that are rotated",
     .derived = "d_qk",
     .weights = kept,
     .since = 5,
     .needs = &Needs::kRotary},
    rotary.width, Integers{0, 576});
  v({.name = "rotary_base",
     .help = "rotary positions: base of the frequencies (larger for longer contexts)",
     .since = 5,
     .needs = &Needs::kRotary},
    rotary.base, Numbers{1, 1e12});
  v({.name = "rotary_layout",
     .help = "rotary positions: which dimensions form a pair",
     .weights = kept,
     .since = 5,
     .needs = &Needs::kRotary},
    rotary.layout);
  v({.name = "rotary_scaling",
     .help = "rotary positions: scaling method for a context longer than in pretraining",
     .since = 5,
     .needs = &Needs::kRotary},
    rotary.scaling);
  v({.name = "rotary_factor",
     .help = "rotary scaling: context length divided by rotary_original_context",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.factor, Numbers{1, 1e6});
  v({.name = "rotary_original_context",
     .help = "rotary scaling: context length of pretraining",
     .derived = "context",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.original_context, Integers{0, 1 << 28});
  v({.name = "rotary_low",
     .help = "yarn, llama3: dimensions that rotate fewer times within the original context are slowed down",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.low, Numbers{0, 1e6});
  v({.name = "rotary_high",
     .help = "yarn, llama3: dimensions that rotate more times stay unchanged",
     .derived = "4 (32 for yarn)",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.high, Numbers{0, 1e6});
  v({.name = "rotary_magnitude",
     .help = "rotary positions: factor on cosines and sines",
     .derived = "1 (0.1 ln(rotary_factor) + 1 for yarn)",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.magnitude, Numbers{0, 1e3});
  v({.name = "rotary_truncated",
     .help = "yarn: the ramp begins and ends at whole dimensions",
     .since = 16,
     .needs = &Needs::kScaledRotary},
    rotary.truncated);
  v({.name = "rotary_values",
     .help = "rotary positions: rotate values as well as queries and keys",
     .weights = kept,
     .since = 16,
     .needs = &Needs::kRotary},
    rotary.values);
  v({.name = "rotary_turned",
     .help = "rotary positions: how many of rotary_width's dimensions turn, as in Gemma 4 (0: all)",
     .weights = kept,
     .since = 17,
     .needs = &Needs::kRotary},
    rotary.turned, Integers{0, 576});
  v({.name = "rotary_short_factors",
     .help = "longrope: slow-down factor per pair up to the original context",
     .since = 12},
    rotary.short_factors, Numbers{1e-6, 1e6});
  v({.name = "rotary_long_factors",
     .help = "longrope: slow-down factor per pair beyond the original context",
     .since = 12},
    rotary.long_factors, Numbers{1e-6, 1e6});
}

// Attention with relative position vectors.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, RelativeSpec>
void for_each_field(Spec& relative, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "relative_attention",
     .help = "relative position vectors in attention: Shaw (shaw_both: also for keys), Transformer-XL, or "
             "DeBERTa (disentangled)",
     .weights = kept,
     .since = 7},
    relative.kind);
  v({.name = "relative_attention_distance",
     .help = "distance beyond which relative positions share a vector (transformer_xl 0: none share)",
     .derived = "16 (context for disentangled, 0 for transformer_xl)",
     .weights = kept,
     .since = 7},
    relative.distance, Integers{0, 1 << 16});
  v({.name = "relative_attention_buckets",
     .help = "disentangled: number of distance buckets per side (0: one per distance)",
     .weights = kept,
     .since = 7},
    relative.buckets, Integers{0, 1 << 16});
  v({.name = "relative_by_content",
     .help = "disentangled: content-to-position scores",
     .weights = kept,
     .since = 7},
    relative.by_content);
  v({.name = "relative_by_position",
     .help = "disentangled: position-to-content scores",
     .weights = kept,
     .since = 7},
    relative.by_position);
  v({.name = "relative_shared",
     .help = "disentangled: positions use the projections of queries and keys",
     .weights = kept,
     .since = 7},
    relative.shared_projections);
  v({.name = "relative_norm",
     .help = "disentangled: normalize the position vectors",
     .weights = kept,
     .since = 7},
    relative.normed);
  v({.name = "relative_segments",
     .help = "transformer_xl: segment scores as in XLNet",
     .weights = kept,
     .since = 7},
    relative.segments);
}

// Attention: heads and options of Algorithm 5.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, AttentionSpec>
void for_each_field(Spec& a, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "heads", .help = "attention heads", .weights = kept}, a.heads, Integers{1, 4096});
  v({.name = "kv_heads",
     .help = "key and value heads (fewer than heads: grouped-query attention)",
     .derived = "heads",
     .weights = kept},
    a.kv_heads, Integers{1, 4096});
  v({.name = "d_qk",
     .help = "width of the queries and keys of a head",
     .derived = "width / heads",
     .weights = kept},
    a.d_qk, Integers{1, 576});
  v({.name = "d_vo", .help = "width of the values of a head", .derived = "width / heads", .weights = kept},
    a.d_vo, Integers{1, 576});
  v({.name = "head_sizes",
     .help = "different width for each head, e.g. [16, 16, 32, 64] (empty: all alike)",
     .weights = kept,
     .since = 8},
    a.head_sizes, Integers{1, 576});
  v({.name = "attention_bias",
     .help = "bias in the linear layers of queries, keys and values",
     .weights = kept},
    a.bias);
  v({.name = "attention_key_bias",
     .help = "attention_bias: keys have a bias as well",
     .weights = kept,
     .since = 16},
    a.key_bias);
  v({.name = "attention_out_bias",
     .help = "bias in the output layer of attention",
     .derived = "attention_bias",
     .weights = kept,
     .since = 5},
    a.out_bias);
  v({.name = "attention_scaled", .help = "divide attention scores by sqrt(d_qk)", .weights = kept}, a.scaled);
  v({.name = "attention_scale",
     .help = "factor on attention scores (0: 1 / sqrt(d_qk))",
     .weights = kept,
     .since = 5},
    a.scale, Numbers{0, 1e6});
  v({.name = "attention_scaled_by_layer",
     .help = "divide attention scores by the layer's number as well (GPT-2)",
     .place = model_file},
    a.scaled_by_layer);
  v({.name = "attention_clip",
     .help = "clip queries, keys and values of self-attention to this magnitude, as in OLMo and MPT (0: off)",
     .weights = kept,
     .since = 11,
     .needs = &Needs::kSelfAttention},
    a.clip, Numbers{0, 1e6});
  v({.name = "attention_cap",
     .help = "soft cap of attention scores: cap tanh(s / cap), as in Gemma 2 (0: off)",
     .weights = kept,
     .since = 6},
    a.cap, Numbers{0, 1e6});
  v({.name = "query_growth",
     .help = "queries at position t times 1 + query_growth ln(1 + t / query_growth_every), for long contexts "
             "(0: off)",
     .weights = kept,
     .since = 16,
     .needs = &Needs::kSelfAttention},
    a.query_growth, Numbers{0, 1e3});
  v({.name = "query_growth_every",
     .help = "query_growth: positions between two steps",
     .weights = kept,
     .since = 16,
     .needs = &Needs::kGrowingQueries},
    a.query_growth_every, Integers{1, 1 << 28});
  v({.name = "query_growth_from",
     .help = "query_growth: position of the first token",
     .weights = kept,
     .since = 16,
     .needs = &Needs::kGrowingQueries},
    a.query_growth_from, Integers{0, 1});
  v({.name = "attention_sinks",
     .help = "learned attention sink per head, as in gpt-oss",
     .weights = kept,
     .since = 6},
    a.sinks);
  v({.name = "query_key_norm",
     .help = "norm of queries and keys: RMSNorm per head (heads; _plus_one: weight + 1; _rotated: after "
             "rotation; unit_rotated: no weight), of all (whole), or layer norm (layer, layer_heads)",
     .weights = kept,
     .since = 5,
     .needs = &Needs::kSelfAttention},
    a.query_key_norm);
  v({.name = "value_norm",
     .help = "RMSNorm of each head's values, without weights (Gemma 4)",
     .weights = kept,
     .since = 17,
     .needs = &Needs::kSelfAttention},
    a.value_norm);
  v({.name = "values_of_keys",
     .help = "values are the projected keys before norms and positions (Gemma 4)",
     .weights = kept,
     .since = 17,
     .needs = &Needs::kSelfAttention},
    a.values_of_keys);
  v({.name = "attention_gate",
     .help = "each head's output is multiplied by the sigmoid of a projection (Qwen3-Next)",
     .weights = kept,
     .since = 20,
     .needs = &Needs::kSelfAttention},
    a.gated);
  v({.name = "reused_keys",
     .help = "reuse the keys and values of the last earlier layer whose attention is otherwise the same "
             "(cross-layer attention, Gemma 4)",
     .weights = kept,
     .since = 17,
     .needs = &Needs::kSelfAttention},
    a.reused_keys);
  v({.name = "patterns",
     .help = "sparse attention, a pattern per layer in turn: \"all\"; \"window 256\" (dilated 2); \"stride "
             "64\"; \"global 2\"; \"block 64\" (neighbours 1, summary 8, ends, random 3); or a combination",
     .since = 6,
     .needs = &Needs::kSelfAttention},
    a.patterns);
  v({.name = "shared_query_key",
     .help = "share queries and keys, 0 or 1 per layer in turn (Reformer)",
     .weights = kept,
     .since = 10,
     .needs = &Needs::kSelfAttention},
    a.shared_query_key, Integers{0, 1});
  v({.name = "hashed_beyond",
     .help = "shared_query_key: longer sequences are attended to by LSH, in chunks of this length (0: never)",
     .weights = kept,
     .since = 10,
     .needs = &Needs::kSelfAttention},
    a.hashing.chunk, Integers{0, 1 << 28});
  v({.name = "hash_rounds",
     .help = "hashed_beyond: rounds of hashing, whose keys are attended to together",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kSelfAttention},
    a.hashing.rounds, Integers{1, 64});
  v({.name = "hash_buckets",
     .help = "hashed_beyond: even factors of the number of buckets, e.g. [8, 16]",
     .derived = "about 2 context / hashed_beyond, of one factor or of two",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kSelfAttention},
    a.hashing.buckets, Integers{2, 1 << 20});
  v({.name = "hash_before",
     .help = "hashed_beyond: chunks that a chunk sees before itself",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kSelfAttention},
    a.hashing.before, Integers{0, 64});
  v({.name = "hash_after",
     .help = "hashed_beyond: chunks that a chunk sees after itself",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kSelfAttention},
    a.hashing.after, Integers{0, 64});
  v({.name = "hash_same_bucket",
     .help = "hashed_beyond: queries see keys of their own bucket only, as in the paper",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kSelfAttention},
    a.hashing.same_bucket);
  v({.name = "cross_linear",
     .help = "attention to sources is linear, of features elu(x) + 1: a source is one matrix of each head",
     .weights = kept,
     .since = 24,
     .needs = &Needs::kAttention},
    a.cross_linear);
  v({.name = "ring_beyond",
     .help = "encoders: layers without shared_query_key see chunks of this length in longer texts, the last "
             "beside "
             "the first (Reformer; 0: never)",
     .weights = kept,
     .since = 24,
     .needs = &Needs::kSelfAttention},
    a.ring.chunk, Integers{0, 1 << 28});
  v({.name = "ring_before",
     .help = "ring_beyond: chunks that a chunk sees before itself",
     .weights = kept,
     .since = 24,
     .needs = &Needs::kSelfAttention},
    a.ring.before, Integers{0, 64});
  v({.name = "ring_after",
     .help = "ring_beyond: chunks that a chunk sees after itself",
     .weights = kept,
     .since = 24,
     .needs = &Needs::kSelfAttention},
    a.ring.after, Integers{0, 64});
  v({.name = "global_projections",
     .help = "separate projections for global tokens (Longformer)",
     .weights = kept,
     .since = 7,
     .needs = &Needs::kSelfAttention},
    a.global_projections);
  v({.name = "attention_dropout", .help = "dropout on attention probabilities", .derived = "dropout"},
    a.dropout, kDropout);
}

// Mixtures of experts.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, ExpertsSpec>
void for_each_field(Spec& x, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "experts",
     .help = "experts per layer (mixture of experts; 0: one dense feed-forward network)",
     .weights = kept,
     .since = 6},
    x.count, Integers{0, 1 << 16});
  v({.name = "experts_chosen", .help = "experts per token", .weights = kept, .since = 6}, x.chosen,
    Integers{1, 1 << 16});
  v({.name = "expert_hidden",
     .help = "hidden width of an expert",
     .derived = "hidden",
     .weights = kept,
     .since = 6},
    x.hidden, Integers{0, 1 << 24});
  v({.name = "expert_first", .help = "first layer with experts, counted from 0", .weights = kept, .since = 6},
    x.first, Integers{0, 4095});
  v({.name = "expert_every",
     .help = "every N-th layer from expert_first on has experts",
     .weights = kept,
     .since = 6},
    x.every, Integers{1, 4096});
  v({.name = "router_score",
     .help = "router scores: softmax over the experts, or a sigmoid per expert (DeepSeek-V3)",
     .weights = kept,
     .since = 6},
    x.score);
  v({.name = "router_bias", .help = "bias in the router's linear layer", .weights = kept, .since = 16},
    x.router_bias);
  v({.name = "expert_bias", .help = "biases in the experts' linear layers", .weights = kept, .since = 16},
    x.bias);
  v({.name = "expert_input_weighted",
     .help = "an expert's weight multiplies its input, not its output (Llama 4)",
     .weights = kept,
     .since = 16},
    x.input_weighted);
  v({.name = "experts_renormalized",
     .help = "divide the weights of the chosen experts by their sum",
     .derived = "true (false for one chosen expert)",
     .weights = kept,
     .since = 6},
    x.renormalized);
  v({.name = "expert_scale",
     .help = "factor on the weights of the chosen experts",
     .weights = kept,
     .since = 6},
    x.scale, Numbers{1e-6, 1e6});
  v({.name = "expert_groups",
     .help = "number of expert groups to choose from (DeepSeek-V2)",
     .weights = kept,
     .since = 6},
    x.groups, Integers{1, 1 << 16});
  v({.name = "expert_groups_chosen",
     .help = "number of groups from which a token chooses its experts",
     .weights = kept,
     .since = 6},
    x.chosen_groups, Integers{1, 1 << 16});
  v({.name = "expert_choice_bias",
     .help = "bias per expert that affects only the choice and learns from the load (DeepSeek-V3)",
     .weights = kept,
     .since = 6},
    x.choice_bias);
  v({.name = "expert_choice_rate", .help = "step size of expert_choice_bias", .since = 7}, x.choice_rate,
    Numbers{0, 1e6});
  v({.name = "expert_capacity",
     .help = "maximum tokens per sequence and expert (0: no limit)",
     .weights = kept,
     .since = 6},
    x.capacity, Integers{0, int64_t{1} << 40});
  v({.name = "expert_balance", .help = "weight of the load-balancing loss", .since = 6}, x.balance,
    Numbers{0, 1e6});
  v({.name = "shared_hidden",
     .help = "hidden width of the shared expert, which every token uses (0: none)",
     .weights = kept,
     .since = 6},
    x.shared_hidden, Integers{0, 1 << 24});
  v({.name = "shared_gated", .help = "sigmoid gate on the shared expert", .weights = kept, .since = 6},
    x.shared_gated);
}

// A mixer: the fields of each kind, then the kind. If no kind is named, a field that is set selects its
// mixer; latents of 0 mean attention. So files from before mixers had names keep their meaning.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, MixerSpec>
void for_each_field(Spec& mixer, Visitor& v) {
  MixerSpec read = mixer;
  mixer.for_each([&]<typename M>(const M& one) {
    M changed = one;
    Conditional<Visitor> visitor{v, &is_mixer<M>()};
    M::for_each_field(changed, visitor);
    if (changed != one) read = changed == M() ? MixerSpec() : MixerSpec(changed);
  });
  MixerKind kind = read.kind();
  v({.name = "mixer",
     .help = "sequence mixer of a block: attention or an alternative",
     .derived = "attention (latent_attention if kv_latent is set)",
     .weights = WithWeights::kept,
     .since = 15,
     .implied = read == MixerSpec() || read != MixerSpec::of(kind)},
    kind);
  if constexpr (!std::is_const_v<Spec>) mixer = kind == read.kind() ? read : MixerSpec::of(kind);
}

// A block: the model's own, or that of a kind of layers.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, BlockSpec>
void for_each_field(Spec& s, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  for_each_field(s.mixer, v);
  Conditional<Visitor> attends{v, &Needs::kAttention};
  for_each_field(s.attention, attends);
  v({.name = "hidden",
     .help = "hidden width of the feed-forward network (0: blocks have none, attention alone)",
     .derived = "4 x width",
     .weights = kept},
    s.hidden, Integers{0, 1 << 24});
  v({.name = "activation",
     .help = "activation function of the feed-forward network",
     .derived = "gelu_tanh (gelu for encoders)",
     .weights = kept},
    s.activation);
  v({.name = "gated",
     .help = "gated feed-forward network (GLU variants such as SwiGLU)",
     .weights = kept,
     .since = 3},
    s.gated);
  v({.name = "gate_limit",
     .help = "gated: limit of the activation's input and of the other half, which gains 1, as in gpt-oss (0: "
             "none)",
     .weights = kept,
     .since = 16,
     .needs = &Needs::kGated},
    s.gate_limit, Numbers{0, 1e6});
  v({.name = "feed_forward_bias", .help = "bias in the feed-forward network", .weights = kept, .since = 3},
    s.feed_forward_bias);
  v({.name = "hidden_layers",
     .help = "hidden layers of the feed-forward network",
     .weights = kept,
     .since = 6},
    s.hidden_layers, Integers{1, 64});
  v({.name = "channel_mix",
     .help = "feed-forward network that also reads the row before, as in RWKV: rwkv4 (with a gate of its "
             "output), rwkv7, or none",
     .weights = kept,
     .since = 21},
    s.channel_mix);
  for_each_field(s.experts, v);
  v({.name = "norm",
     .help = "place of the norms: pre x + f(norm(x)); post norm(x + f(x)); sandwich x + norm(f(norm(x))); "
             "branch x + norm(f(x)); stream norm(x) + f(norm(x))",
     .derived = "pre (post for encoders)",
     .weights = kept,
     .since = 2,
     .file_name = "norm_placement"},
    s.norm_placement);
  v({.name = "normalization",
     .help = "kind of norm: layer norm (_scale: no bias; _plain: no weights), RMSNorm (rms), either with "
             "weight + 1 (_plus_one), ScaleNorm (scale), capsule squash, or batch norm",
     .weights = kept,
     .since = 3},
    s.normalization);
  v({.name = "norm_epsilon",
     .help = "added to the variance for numerical stability",
     .derived = "1e-05 (1e-12 for encoders)",
     .weights = kept},
    s.norm_epsilon, Numbers{0, 1});
  v({.name = "mixer_norm",
     .help = "pre-norm blocks: norm before the mixer (false: it reads the residual stream itself)",
     .weights = kept,
     .since = 16},
    s.mixer_norm);
  v({.name = "branches",
     .help = "attention and feed-forward network in sequence (serial), in parallel with two norms (parallel) "
             "or one (one_norm), or as two reversible streams (Reformer)",
     .weights = kept,
     .since = 5},
    s.branches);
  v({.name = "residual_multiplier", .help = "factor on each residual branch", .weights = kept, .since = 5},
    s.residual_multiplier, kFactor);
  v({.name = "block_scaled",
     .help = "multiply each block's output by a stored number, which training leaves alone (Gemma 4)",
     .weights = kept,
     .since = 17},
    s.block_scaled);
  v({.name = "positions",
     .help = "position encoding: learned or sinusoidal embeddings, relative biases (T5; toeplitz: one per "
             "distance), rotary (RoPE), ALiBi, or none",
     .derived = "learned (none without attention)",
     .weights = kept,
     .since = 2},
    s.positions);
  v({.name = "distance_bias",
     .help = "bias by distance beside other positions: relative (T5), toeplitz or ALiBi",
     .weights = kept,
     .since = 16,
     .needs = &Needs::kSelfAttention},
    s.distance_bias);
  v({.name = "relative_by_layer",
     .help = "relative and toeplitz positions: biases of its own in each layer (UMT5)",
     .weights = kept,
     .since = 16,
     .needs = &Needs::kDistances},
    s.relative_by_layer);
  v({.name = "relative_buckets",
     .help = "relative positions: number of distance buckets",
     .weights = kept,
     .since = 3,
     .needs = &Needs::kBuckets},
    s.relative_buckets, Integers{4, 1 << 16});
  v({.name = "relative_distance",
     .help = "relative and toeplitz positions: distances beyond this share a bias",
     .weights = kept,
     .since = 3,
     .needs = &Needs::kDistances},
    s.relative_distance, Integers{1, 1 << 24});
  for_each_field(s.attention.rotary, v);
  for_each_field(s.attention.relative, v);
}

}  // namespace qkv

// The schema of a ModelSpec: every field is declared here once. TOML, config.json, the comparison with
// model.from, the check of ranges and the help text walk this list.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <vector>

#include "qkv/models/field_conditions.h"
#include "qkv/models/spec.h"

namespace qkv {

// A Spec, or a constant one.
template <typename T, typename Spec>
concept IsSpec = std::same_as<std::remove_const_t<T>, Spec>;

// for_each_field(spec, v) calls v(field, member) for every field of a spec, or v(field, member, range) if
// the field is a number. A field comes after those that its default depends on.

// Recurrent stacks, and how a recurrent decoder looks at its source.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, RecurrenceSpec>
void for_each_field(Spec& r, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "encoder",
     .help = "encoder of an encoder_decoder: transformer blocks or a recurrent network",
     .weights = kept,
     .since = 4},
    r.encoder);
  v({.name = "decoder",
     .help = "decoder of an encoder_decoder: transformer blocks or a recurrent network",
     .weights = kept,
     .since = 4},
    r.decoder);
  v({.name = "bidirectional",
     .help = "the recurrent encoder reads the source in both directions",
     .derived = "true if the decoder attends to the source",
     .weights = kept,
     .since = 4,
     .needs = &Needs::kRecurrentEncoder},
    r.bidirectional);
  v({.name = "source_attention",
     .help = "attention of a recurrent decoder to the source: additive (Bahdanau), dot or local (Luong)",
     .derived = "none (dot for recurrent decoders)",
     .weights = kept,
     .since = 4},
    r.attention);
  v({.name = "local_window",
     .help = "local attention: tokens on each side of the predicted position",
     .weights = kept,
     .since = 4,
     .needs = &Needs::kLocalAttention},
    r.window, Integers{1, 1 << 20});
}

// The encoder of an encoder-decoder, if its shape differs from the decoder's.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, EncoderShape>
void for_each_field(Spec& e, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "encoder_width",
     .help = "width of the encoder if it differs from the decoder's (0: width)",
     .weights = kept,
     .since = 7},
    e.width, Integers{0, 1 << 20});
  v({.name = "encoder_heads",
     .help = "heads of the encoder if they differ from the decoder's (0: heads)",
     .weights = kept,
     .since = 7},
    e.heads, Integers{0, 4096});
  v({.name = "encoder_hidden",
     .help = "feed-forward width of the encoder if it differs from the decoder's (0: hidden)",
     .weights = kept,
     .since = 7},
    e.hidden, Integers{0, 1 << 24});
  v({.name = "encoder_context",
     .help = "maximum number of features or tokens that the encoder reads (0: context)",
     .since = 8,
     .place = model_file},
    e.context, Integers{0, 1 << 28});
  v({.name = "encoder_expert_first",
     .help = "first encoder layer with experts, counted from 0",
     .weights = kept,
     .since = 12},
    e.expert_first, Integers{0, 4095});
  v({.name = "encoder_expert_every",
     .help = "every N-th encoder layer from encoder_expert_first on has experts (0: as in the decoder)",
     .weights = kept,
     .since = 12},
    e.expert_every, Integers{0, 4096});
}

// Images and spectrograms.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, FeatureSpec>
void for_each_field(Spec& f, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "features",
     .help = "input other than tokens: image patches or spectrogram frames",
     .since = 8,
     .place = model_file},
    f.kind);
  v({.name = "feature_channels", .help = "values per pixel or frame", .since = 8, .place = model_file},
    f.channels, Integers{0, 1 << 16});
  v({.name = "feature_patch", .help = "side of an image patch in pixels", .since = 8, .place = model_file},
    f.patch, Integers{0, 1 << 14});
  v({.name = "feature_image", .help = "side of the image in pixels", .since = 8, .place = model_file},
    f.image, Integers{0, 1 << 14});
  v({.name = "feature_bias", .help = "bias in the linear layer of patches", .since = 8, .place = model_file},
    f.bias);
  v({.name = "distilled",
     .help = "second class token with its own head (DeiT)",
     .since = 8,
     .place = model_file},
    f.distilled);
}

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
     .help = "shared_query_key: longest sequence before LSH attention would start, which qkv does not "
             "support (0: no limit)",
     .weights = kept,
     .since = 10,
     .needs = &Needs::kSelfAttention},
    a.hashed_beyond, Integers{0, 1 << 28});
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

// Low-rank adapters on another model's weights.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, LoraSpec>
void for_each_field(Spec& lora, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "lora_rank",
     .help = "rank of LoRA adapters on the model of from; only the adapters are trained and saved (0: train "
             "all weights)",
     .place = configuration},
    lora.rank, Integers{0, 1 << 16});
  v({.name = "lora_alpha",
     .help = "LoRA scaling: adapters are multiplied by lora_alpha / lora_rank",
     .derived = "2 x lora_rank",
     .place = configuration},
    lora.alpha, Numbers{0, 1e6});
  v({.name = "lora_dropout", .help = "dropout on the input of the adapters", .place = configuration},
    lora.dropout, kDropout);
  v({.name = "lora_targets",
     .help = "linear layers to adapt, by full name or ending, e.g. [\"q_proj\", \"v_proj\"]; \"all-linear\": "
             "every linear layer in the blocks",
     .place = configuration},
    lora.targets);
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
     .help = "hidden width of the feed-forward network",
     .derived = "4 x width",
     .weights = kept},
    s.hidden, Integers{1, 1 << 24});
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

// The stacks of a model and their input.
template <typename Spec, typename Visitor>
void for_each_field_of_shape(Spec& s, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "architecture",
     .help = "decoder (GPT), encoder (BERT) or encoder_decoder (the original transformer)",
     .weights = kept,
     .since = 2},
    s.architecture);
  for_each_field(s.recurrence, v);
  v({.name = "reverse_source", .help = "reverse the source (Sutskever)", .weights = kept, .since = 4},
    s.source_reversed);
  v({.name = "vocab_size", .help = "vocabulary size", .place = model_file}, s.vocab_size,
    Integers{1, 1 << 28});
  v({.name = "source_vocab_size",
     .help = "vocabulary size of sources if it differs (0: the same)",
     .since = 5,
     .place = model_file},
    s.source_vocab_size, Integers{0, 1 << 28});
  v({.name = "context", .help = "maximum sequence length in tokens", .weights = kept}, s.context,
    Integers{1, 1 << 28});
  v({.name = "memory",
     .help = "Transformer-XL: tokens of the previous segment that attention also sees, without gradient (0: "
             "none)",
     .since = 9},
    s.memory, Integers{0, 1 << 24});
  v({.name = "width", .help = "model width (embedding size)", .weights = kept}, s.width,
    Integers{1, 1 << 20});
  v({.name = "layers", .help = "number of blocks (of the decoder in an encoder_decoder)", .weights = kept},
    s.layers, Integers{1, 4096});
  v({.name = "encoder_layers",
     .help = "number of encoder blocks in an encoder_decoder",
     .derived = "layers, or 0",
     .weights = kept,
     .since = 2},
    s.encoder_layers, Integers{0, 4096});
  for_each_field(s.encoder, v);
  for_each_field(s.features, v);
  for_each_field(s.lora, v);
}

// The blocks of a model's stacks.
template <typename Spec, typename Visitor>
void for_each_field_of_blocks(Spec& s, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  std::conditional_t<std::is_const_v<Spec>, const BlockSpec, BlockSpec>& block = s;
  for_each_field(block, v);
  v({.name = "layer_kinds",
     .help = "kind of each layer in turn: names of [model.kind.NAME], or \"default\" for the block in "
             "[model] (empty: all layers alike)",
     .weights = kept,
     .since = 14},
    s.layer_kinds);
  v({.name = "encoder_layer_kinds",
     .help = "kind of each encoder layer of an encoder_decoder in turn (empty: as layer_kinds)",
     .weights = kept,
     .since = 16},
    s.encoder_layer_kinds);
  v({.name = "layer_groups",
     .help = "share weights among neighbouring layers, in this many groups (0: no sharing)",
     .weights = kept,
     .since = 5},
    s.layer_groups, Integers{0, 4096});
  v({.name = "final_norm",
     .help = "norm after the last block (never with post or none)",
     .weights = kept,
     .since = 13},
    s.final_norm);
  v({.name = "dropout",
     .help = "dropout rate of residual branches; default for embeddings and attention",
     .file_name = "residual_dropout"},
    s.residual_dropout, kDropout);
  v({.name = "embedding_dropout", .help = "dropout on the sum of embeddings", .derived = "dropout"},
    s.embedding_dropout, kDropout);
}

// Positions, and the order in which tokens see each other.
template <typename Spec, typename Visitor>
void for_each_field_of_positions(Spec& s, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "first_position",
     .help = "learned and sinusoidal_closed positions: index of the first token (0: default)",
     .weights = kept,
     .since = 12},
    s.first_position, Integers{0, 1 << 20});
  v({.name = "grid",
     .help = "positions in rows of this many columns, as in images (0: one dimension)",
     .weights = kept,
     .since = 7},
    s.grid, Integers{0, 1 << 28});
  v({.name = "axial_width",
     .help = "learned positions in a grid: dimensions for the row, the rest for the column (0: all for both)",
     .weights = kept,
     .since = 10},
    s.axial_width, Integers{0, 1 << 20});
  v({.name = "order",
     .help = "causal order (stack), prefix LM: the prompt attends in both directions (prefix), or "
             "permutation LM (permuted)",
     .derived = "stack (prefix for decoders trained on pairs, permuted for permutation)",
     .since = 4},
    s.order);
  v({.name = "stacks_apart",
     .help = "separate position embeddings and embedding norms for encoder and decoder (BART)",
     .weights = kept,
     .since = 3},
    s.stacks_apart);
}

// Embeddings and heads.
template <typename Spec, typename Visitor>
void for_each_field_of_ends(Spec& s, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "embedding_width",
     .help = "width of token embeddings if it differs from width (0: width)",
     .weights = kept,
     .since = 5},
    s.embedding_width, Integers{0, 1 << 20});
  v({.name = "embedding_projected_last",
     .help = "project to width after adding positions and norm (ALBERT)",
     .weights = kept,
     .since = 5},
    s.embedding_projected_last);
  v({.name = "embedding_scaled",
     .help = "multiply token embeddings by sqrt(width)",
     .weights = kept,
     .since = 2},
    s.embedding_scaled);
  v({.name = "embedding_unit",
     .help = "normalize token embeddings and unembeddings to length 1 (FixNorm)",
     .weights = kept,
     .since = 7},
    s.embedding_unit);
  v({.name = "embedding_multiplier", .help = "factor on token embeddings", .weights = kept, .since = 5},
    s.embedding_multiplier, kFactor);
  v({.name = "embedding_norm",
     .help = "norm on the sum of embeddings",
     .derived = "false (true for encoders)",
     .weights = kept,
     .since = 2},
    s.embedding_norm);
  v({.name = "segments",
     .help = "number of segment embeddings, e.g. 2 for text pairs",
     .derived = "0 (2 for encoders)",
     .weights = kept,
     .since = 2},
    s.segments, Integers{0, 1 << 16});
  v({.name = "logit_multiplier",
     .help = "factor on logits",
     .weights = kept_output,
     .since = 5,
     .needs = &Needs::kLogits},
    s.logit_multiplier, kFactor);
  v({.name = "logit_cap",
     .help = "soft cap of logits: cap tanh(z / cap), as in Gemma 2 (0: off)",
     .weights = kept_output,
     .since = 6,
     .needs = &Needs::kLogits},
    s.logit_cap, Numbers{0, 1e6});
  v({.name = "head_width",
     .help = "width of a linear layer before the unembedding (0: none)",
     .derived = "0 (width for masked and permutation)",
     .since = 2,
     .needs = &Needs::kTokens},
    s.head_width, Integers{0, 1 << 20});
  v({.name = "head_activation",
     .help = "activation function of that layer",
     .derived = "activation",
     .since = 12,
     .needs = &Needs::kHead},
    OrElse{s.head_activation, s.activation});
  v({.name = "head_bias", .help = "bias in that layer", .since = 16, .needs = &Needs::kHead}, s.head_bias);
  v({.name = "unembedding_bias",
     .help = "bias on the logits",
     .derived = "false (true for masked and permutation)",
     .since = 2,
     .needs = &Needs::kTokens},
    s.unembedding_bias);
  v({.name = "unembedding_scaled",
     .help = "divide the input of the unembedding by sqrt(width) (tied T5)",
     .weights = kept,
     .since = 3,
     .needs = &Needs::kTokens},
    s.unembedding_scaled);
  v({.name = "tied",
     .help = "weight tying: the unembedding is the token embedding",
     .needs = &Needs::kTokens},
    s.tied);
  v({.name = "output", .help = "type of the output", .since = 3, .place = model_file}, s.output);
  v({.name = "labels", .help = "class names", .since = 3, .place = model_file}, s.labels);
  v({.name = "pooling",
     .help = "vector of a text: its first token's, its last token's or the mean",
     .derived = "first (last for decoders)",
     .since = 3,
     .needs = &Needs::kPooled},
    s.pooling);
  v({.name = "pooler",
     .help = "linear layer between the pooled vector and the classes",
     .derived = "true if pooling is first",
     .since = 3,
     .needs = &Needs::kSequenceClasses},
    s.pooler);
  v({.name = "pooler_activation",
     .help = "activation function of the pooler",
     .since = 6,
     .needs = &Needs::kPooler},
    s.pooler_activation);
  v({.name = "pooler_bias", .help = "bias of the pooler", .since = 16, .needs = &Needs::kPooler},
    s.pooler_bias);
  v({.name = "pooler_norm", .help = "norm after the pooler", .since = 16, .needs = &Needs::kPooler},
    s.pooler_norm);
  v({.name = "classifier_bias",
     .help = "bias of the classifier",
     .derived = "true (false for decoders)",
     .since = 12,
     .needs = &Needs::kClasses},
    s.classifier_bias);
  v({.name = "head_dropout",
     .help = "dropout on the input of the classifier",
     .derived = "dropout",
     .since = 3,
     .needs = &Needs::kClasses},
    s.head_dropout, kDropout);
  v({.name = "init_std",
     .help = "standard deviation of initial weights",
     .derived = "0.02 (1 / sqrt(width) with an encoder)"},
    s.init_std, Numbers{0, 10});
}

// A whole model.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, ModelSpec>
void for_each_field(Spec& s, Visitor& v) {
  for_each_field_of_shape(s, v);
  for_each_field_of_blocks(s, v);
  for_each_field_of_positions(s, v);
  for_each_field_of_ends(s, v);
}

// A field's value as users see it: "256", "true", "gelu", "[1, 2]".
struct FieldText {
  SpecField field;
  std::string text;
};
// The texts of all fields, in the schema's order, of a model without its kinds of blocks, or of a block.
std::vector<FieldText> field_texts(const ModelSpec& spec);
std::vector<FieldText> field_texts(const BlockSpec& block);
// The texts of a block's fields that differ from those of `other`.
std::vector<FieldText> differing_texts(const BlockSpec& block, const BlockSpec& other);

}  // namespace qkv

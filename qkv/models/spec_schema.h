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

// for_each_field(spec, v) calls v(field, member), of numbers v(field, member, range), with every field of a
// spec. A field comes after those that its default depends on.

// Recurrent stacks, and how a recurrent decoder looks at its source.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, RecurrenceSpec>
void for_each_field(Spec& r, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "encoder",
     .help = "of an encoder_decoder: blocks of attention, or a recurrence",
     .weights = kept,
     .since = 4},
    r.encoder);
  v({.name = "decoder", .help = "likewise", .weights = kept, .since = 4}, r.decoder);
  v({.name = "bidirectional",
     .help = "a recurrent encoder reads both ways",
     .derived = "true where the decoder looks at the source",
     .weights = kept,
     .since = 4,
     .needs = &Needs::kRecurrentEncoder},
    r.bidirectional);
  v({.name = "source_attention",
     .help = "of a recurrent decoder; additive: before each step (Bahdanau); dot, local: after it (Luong)",
     .derived = "none, of a recurrent decoder dot",
     .weights = kept,
     .since = 4},
    r.attention);
  v({.name = "local_window",
     .help = "of local attention: tokens on each side of the place it predicts",
     .weights = kept,
     .since = 4,
     .needs = &Needs::kLocalAttention},
    r.window, Integers{1, 1 << 20});
}

// The encoder of an encoder-decoder, where it has another shape than the decoder.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, EncoderShape>
void for_each_field(Spec& e, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "encoder_width",
     .help = "of an encoder_decoder's encoder, where another than width; 0: the same",
     .weights = kept,
     .since = 7},
    e.width, Integers{0, 1 << 20});
  v({.name = "encoder_heads", .help = "likewise", .weights = kept, .since = 7}, e.heads, Integers{0, 4096});
  v({.name = "encoder_hidden", .help = "likewise", .weights = kept, .since = 7}, e.hidden,
    Integers{0, 1 << 24});
  v({.name = "encoder_context",
     .help = "features that the encoder reads; 0: context",
     .since = 8,
     .place = model_file},
    e.context, Integers{0, 1 << 28});
  v({.name = "encoder_expert_first",
     .help = "the encoder's first layer with experts, counted from 0",
     .weights = kept,
     .since = 12},
    e.expert_first, Integers{0, 4095});
  v({.name = "encoder_expert_every",
     .help = "of its layers from there on, each so-many-th has experts; 0: as the decoder's",
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
     .help = "rows of numbers that it reads: patches of images, frames of spectrograms",
     .since = 8,
     .place = model_file},
    f.kind);
  v({.name = "feature_channels", .help = "numbers of a pixel or a frame", .since = 8, .place = model_file},
    f.channels, Integers{0, 1 << 16});
  v({.name = "feature_patch", .help = "pixels along the side of a patch", .since = 8, .place = model_file},
    f.patch, Integers{0, 1 << 14});
  v({.name = "feature_image", .help = "pixels along the side of an image", .since = 8, .place = model_file},
    f.image, Integers{0, 1 << 14});
  v({.name = "feature_bias", .help = "a bias in the linear map of a patch", .since = 8, .place = model_file},
    f.bias);
  v({.name = "distilled",
     .help = "a second class token with a head of its own (DeiT)",
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
     .help = "of rotary positions: columns of a head that are turned",
     .derived = "d_qk",
     .weights = kept,
     .since = 5,
     .needs = &Needs::kRotary},
    rotary.width, Integers{0, 576});
  v({.name = "rotary_base",
     .help = "of the angles: more for longer contexts",
     .since = 5,
     .needs = &Needs::kRotary},
    rotary.base, Numbers{1, 1e12});
  v({.name = "rotary_layout",
     .help = "which columns make a pair",
     .weights = kept,
     .since = 5,
     .needs = &Needs::kRotary},
    rotary.layout);
  v({.name = "rotary_scaling",
     .help = "for contexts longer than that of the first training",
     .since = 5,
     .needs = &Needs::kRotary},
    rotary.scaling);
  v({.name = "rotary_factor", .help = "how much longer", .since = 5, .needs = &Needs::kScaledRotary},
    rotary.factor, Numbers{1, 1e6});
  v({.name = "rotary_original_context",
     .help = "that of the first training",
     .derived = "context",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.original_context, Integers{0, 1 << 28});
  v({.name = "rotary_low",
     .help = "of yarn and llama3: pairs that turn less often in it are slowed down",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.low, Numbers{0, 1e6});
  v({.name = "rotary_high",
     .help = "those that turn more often are not",
     .derived = "4, of yarn 32",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.high, Numbers{0, 1e6});
  v({.name = "rotary_magnitude",
     .help = "of cosines and sines",
     .derived = "1, of yarn 0.1 ln(rotary_factor) + 1",
     .since = 5,
     .needs = &Needs::kScaledRotary},
    rotary.magnitude, Numbers{0, 1e3});
  v({.name = "rotary_short_factors",
     .help = "of longrope: how much each pair is slowed down up to the original context",
     .since = 12},
    rotary.short_factors, Numbers{1e-6, 1e6});
  v({.name = "rotary_long_factors", .help = "and beyond it", .since = 12}, rotary.long_factors,
    Numbers{1e-6, 1e6});
}

// Attention that knows distances by vectors.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, RelativeSpec>
void for_each_field(Spec& relative, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "relative_attention",
     .help = "scores know distances by vectors: of Shaw (shaw_both: of keys, too), Transformer-XL or DeBERTa "
             "(disentangled)",
     .weights = kept,
     .since = 7},
    relative.kind);
  v({.name = "relative_attention_distance",
     .help = "from which on all share one; of transformer_xl 0: none do",
     .derived = "16, of disentangled context, of transformer_xl 0",
     .weights = kept,
     .since = 7},
    relative.distance, Integers{0, 1 << 16});
  v({.name = "relative_attention_buckets",
     .help = "of disentangled: so many distances on each side have a vector, far ones share; 0: all have",
     .weights = kept,
     .since = 7},
    relative.buckets, Integers{0, 1 << 16});
  v({.name = "relative_by_content",
     .help = "of disentangled: a query meets the vector of a distance",
     .weights = kept,
     .since = 7},
    relative.by_content);
  v({.name = "relative_by_position", .help = "of disentangled: a key does", .weights = kept, .since = 7},
    relative.by_position);
  v({.name = "relative_shared",
     .help = "of disentangled: they are projected as queries and keys are",
     .weights = kept,
     .since = 7},
    relative.shared_projections);
  v({.name = "relative_norm", .help = "of disentangled: a norm of them", .weights = kept, .since = 7},
    relative.normed);
  v({.name = "relative_segments",
     .help = "of transformer_xl: scores know whether two tokens are of one segment (XLNet)",
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
  v({.name = "heads", .help = "of attention", .weights = kept}, a.heads, Integers{1, 4096});
  v({.name = "kv_heads",
     .help = "fewer: query heads share keys and values",
     .derived = "heads",
     .weights = kept},
    a.kv_heads, Integers{1, 4096});
  v({.name = "d_qk",
     .help = "width of a head's queries and keys",
     .derived = "width / heads",
     .weights = kept},
    a.d_qk, Integers{1, 576});
  v({.name = "d_vo", .help = "width of a head's values", .derived = "width / heads", .weights = kept}, a.d_vo,
    Integers{1, 576});
  v({.name = "head_sizes",
     .help =
         "of heads of different sizes, each one's width of queries, keys and values, e.g. [16, 16, 32, 64]",
     .weights = kept,
     .since = 8},
    a.head_sizes, Integers{1, 576});
  v({.name = "attention_bias", .help = "biases of queries, keys and values", .weights = kept}, a.bias);
  v({.name = "attention_out_bias",
     .help = "of the projection of their output",
     .derived = "attention_bias",
     .weights = kept,
     .since = 5},
    a.out_bias);
  v({.name = "attention_scaled", .help = "scores are divided by sqrt(d_qk)", .weights = kept}, a.scaled);
  v({.name = "attention_scale",
     .help = "scores are multiplied by it; 0: by 1 / sqrt(d_qk)",
     .weights = kept,
     .since = 5},
    a.scale, Numbers{0, 1e6});
  v({.name = "attention_scaled_by_layer",
     .help = "scores are divided by the layer's number, too (GPT-2)",
     .place = model_file},
    a.scaled_by_layer);
  v({.name = "attention_clip",
     .help =
         "queries, keys and values of self-attention are cut off beyond it, as in OLMo and MPT; 0: they stay",
     .weights = kept,
     .since = 11,
     .needs = &Needs::kSelfAttention},
    a.clip, Numbers{0, 1e6});
  v({.name = "attention_cap",
     .help = "scaled scores s become cap tanh(s / cap), as in Gemma 2; 0: they stay",
     .weights = kept,
     .since = 6},
    a.cap, Numbers{0, 1e6});
  v({.name = "attention_sinks",
     .help = "each head has a learned score without a value, as in gpt-oss",
     .weights = kept,
     .since = 6},
    a.sinks);
  v({.name = "query_key_norm",
     .help = "of queries and keys: an RMSnorm of each head or of all together (whole), or Algorithm 6 of "
             "each head, by the same weights (layer) or its own (layer_heads)",
     .weights = kept,
     .since = 5,
     .needs = &Needs::kSelfAttention},
    a.query_key_norm);
  v({.name = "patterns",
     .help =
         "which tokens a token sees, of layers in turn: \"all\"; \"window 256\" (dilated 2); \"stride 64\"; "
         "\"global 2\"; \"block 64\" (neighbours 1, summary 8, ends, random 3), or several of these",
     .since = 6,
     .needs = &Needs::kSelfAttention},
    a.patterns);
  v({.name = "shared_query_key",
     .help = "of layers in turn: 1 where the queries, made of length sqrt(d_qk), are the keys, and a token "
             "sees itself last (Reformer)",
     .weights = kept,
     .since = 10,
     .needs = &Needs::kSelfAttention},
    a.shared_query_key, Integers{0, 1});
  v({.name = "hashed_beyond",
     .help = "of these layers: longer sequences would be hashed, and are refused; 0: none is",
     .weights = kept,
     .since = 10,
     .needs = &Needs::kSelfAttention},
    a.hashed_beyond, Integers{0, 1 << 28});
  v({.name = "global_projections",
     .help = "tokens that see all have queries, keys and values of their own (Longformer)",
     .weights = kept,
     .since = 7,
     .needs = &Needs::kSelfAttention},
    a.global_projections);
  v({.name = "attention_dropout", .help = "of the probabilities of attention", .derived = "dropout"},
    a.dropout, kDropout);
}

// Mixtures of experts.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, ExpertsSpec>
void for_each_field(Spec& x, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "experts",
     .help = "feed-forward networks of a layer, of which each token goes through a few; 0: one for all",
     .weights = kept,
     .since = 6},
    x.count, Integers{0, 1 << 16});
  v({.name = "experts_chosen",
     .help = "of a token: those with the highest affinities",
     .weights = kept,
     .since = 6},
    x.chosen, Integers{1, 1 << 16});
  v({.name = "expert_hidden", .help = "width of an expert", .derived = "hidden", .weights = kept, .since = 6},
    x.hidden, Integers{0, 1 << 24});
  v({.name = "expert_first",
     .help = "the first layer with experts, counted from 0",
     .weights = kept,
     .since = 6},
    x.first, Integers{0, 4095});
  v({.name = "expert_every",
     .help = "of the layers from there on, each so-many-th has experts",
     .weights = kept,
     .since = 6},
    x.every, Integers{1, 4096});
  v({.name = "router_score",
     .help = "affinities: a softmax over experts, or a sigmoid of each (DeepSeek-V3)",
     .weights = kept,
     .since = 6},
    x.score);
  v({.name = "experts_renormalized",
     .help = "the weights of the chosen are divided by their sum",
     .derived = "true, of one chosen false",
     .weights = kept,
     .since = 6},
    x.renormalized);
  v({.name = "expert_scale", .help = "and times this", .weights = kept, .since = 6}, x.scale,
    Numbers{1e-6, 1e6});
  v({.name = "expert_groups",
     .help = "experts are chosen from the best of so many groups",
     .weights = kept,
     .since = 6},
    x.groups, Integers{1, 1 << 16});
  v({.name = "expert_groups_chosen", .help = "how many of them", .weights = kept, .since = 6},
    x.chosen_groups, Integers{1, 1 << 16});
  v({.name = "expert_choice_bias",
     .help = "each expert has a bias for the choice alone, which no gradient reaches",
     .weights = kept,
     .since = 6},
    x.choice_bias);
  v({.name = "expert_choice_rate",
     .help = "what it loses at each pass where the expert was chosen too often, or gains",
     .since = 7},
    x.choice_rate, Numbers{0, 1e6});
  v({.name = "expert_capacity",
     .help = "tokens of a sequence that an expert takes; 0: all",
     .weights = kept,
     .since = 6},
    x.capacity, Integers{0, int64_t{1} << 40});
  v({.name = "expert_balance", .help = "of the load-balancing term that training adds", .since = 6},
    x.balance, Numbers{0, 1e6});
  v({.name = "shared_hidden",
     .help = "of a network beside the experts that all tokens go through; 0: none",
     .weights = kept,
     .since = 6},
    x.shared_hidden, Integers{0, 1 << 24});
  v({.name = "shared_gated", .help = "it counts a sigmoid of its own", .weights = kept, .since = 6},
    x.shared_gated);
}

// Low-rank changes beside another model's weights.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, LoraSpec>
void for_each_field(Spec& lora, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "lora_rank",
     .help = "with from: its weights stay, and products have low-rank changes of this rank beside them, "
             "which alone are saved; 0: everything is learnt",
     .place = configuration},
    lora.rank, Integers{0, 1 << 16});
  v({.name = "lora_alpha",
     .help = "changes count lora_alpha / lora_rank",
     .derived = "2 x lora_rank",
     .place = configuration},
    lora.alpha, Numbers{0, 1e6});
  v({.name = "lora_dropout", .help = "of what changes are made of", .place = configuration}, lora.dropout,
    kDropout);
  v({.name = "lora_targets",
     .help = "products that are changed, by their names in the model's file or the ends of those, e.g. "
             "[\"q_proj\", \"v_proj\"]; \"all-linear\": all of its blocks",
     .place = configuration},
    lora.targets);
}

// A mixer: the fields of each, then which it is. Where it is not named, a field that is set makes its mixer
// the block's, and latents of 0 leave attention: files of before mixers had names mean what they meant.
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
     .help = "how tokens meet in a block: attention, or what stands in its place",
     .derived = "attention, with kv_latent latent_attention",
     .weights = WithWeights::kept,
     .since = 15,
     .implied = read == MixerSpec() || read != MixerSpec::of(kind)},
    kind);
  if constexpr (!std::is_const_v<Spec>) mixer = kind == read.kind() ? read : MixerSpec::of(kind);
}

// A block. The model's own, and where its layers differ those of each kind.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, BlockSpec>
void for_each_field(Spec& s, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  for_each_field(s.mixer, v);
  Conditional<Visitor> attends{v, &Needs::kAttention};
  for_each_field(s.attention, attends);
  v({.name = "hidden", .help = "width of the feed-forward network", .derived = "4 x width", .weights = kept},
    s.hidden, Integers{1, 1 << 24});
  v({.name = "activation",
     .help = "of the feed-forward network",
     .derived = "gelu_tanh, of an encoder gelu",
     .weights = kept},
    s.activation);
  v({.name = "gated", .help = "the feed-forward network has a second factor", .weights = kept, .since = 3},
    s.gated);
  v({.name = "feed_forward_bias", .help = "biases in the feed-forward network", .weights = kept, .since = 3},
    s.feed_forward_bias);
  v({.name = "hidden_layers", .help = "of the feed-forward network", .weights = kept, .since = 6},
    s.hidden_layers, Integers{1, 64});
  for_each_field(s.experts, v);
  v({.name = "norm",
     .help = "pre: x + f(norm(x)); post: norm(x + f(x)); sandwich: x + norm(f(norm(x))); branch: x + "
             "norm(f(x)); stream: norm(x) + f(norm(x))",
     .derived = "pre, of an encoder post",
     .weights = kept,
     .since = 2,
     .file_name = "norm_placement"},
    s.norm_placement);
  v({.name = "normalization",
     .help = "layer: Algorithm 6 (_scale: without beta; _plain: without weights); rms: neither centred nor "
             "shifted (_plus_one: its weight is added to 1); scale: rows of one length; capsule: the squash "
             "function; batch: of columns",
     .weights = kept,
     .since = 3},
    s.normalization);
  v({.name = "norm_epsilon",
     .help = "added to the variance",
     .derived = "1e-05, of an encoder 1e-12",
     .weights = kept},
    s.norm_epsilon, Numbers{0, 1});
  v({.name = "branches",
     .help = "attention and feed-forward network in turn, or beside each other with two norms or one; "
             "reversible: in turn, between two streams (Reformer)",
     .weights = kept,
     .since = 5},
    s.branches);
  v({.name = "residual_multiplier", .help = "what a branch adds times this", .weights = kept, .since = 5},
    s.residual_multiplier, kFactor);
  v({.name = "positions",
     .help = "a learned table, a formula; relative: biases of the scores by distance (T5); toeplitz: one for "
             "each distance; rotary: turned queries and keys; alibi: scores fall with the distance",
     .derived = "learned, of recurrences alone none",
     .weights = kept,
     .since = 2},
    s.positions);
  v({.name = "relative_buckets",
     .help = "of relative positions: distances with a bias of their own",
     .weights = kept,
     .since = 3,
     .needs = &Needs::kBuckets},
    s.relative_buckets, Integers{4, 1 << 16});
  v({.name = "relative_distance",
     .help = "from which on all share one; of toeplitz positions, too",
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
     .help = "decoder: continues texts; encoder: reads them; encoder_decoder: source to target",
     .weights = kept,
     .since = 2},
    s.architecture);
  for_each_field(s.recurrence, v);
  v({.name = "reverse_source",
     .help = "the encoder reads its source from the end (Sutskever)",
     .weights = kept,
     .since = 4},
    s.source_reversed);
  v({.name = "vocab_size", .help = "tokens that it knows", .place = model_file}, s.vocab_size,
    Integers{1, 1 << 28});
  v({.name = "source_vocab_size",
     .help = "of an encoder_decoder's sources, where theirs is another; 0: the same",
     .since = 5,
     .place = model_file},
    s.source_vocab_size, Integers{0, 1 << 28});
  v({.name = "context", .help = "tokens that it can see", .weights = kept}, s.context, Integers{1, 1 << 28});
  v({.name = "memory",
     .help = "tokens before a window whose layers' inputs attention sees in training and in qkv eval, "
             "without gradients (Transformer-XL); 0: none",
     .since = 9},
    s.memory, Integers{0, 1 << 24});
  v({.name = "width", .help = "of an embedding", .weights = kept}, s.width, Integers{1, 1 << 20});
  v({.name = "layers", .help = "blocks; of an encoder_decoder the decoder's", .weights = kept}, s.layers,
    Integers{1, 4096});
  v({.name = "encoder_layers",
     .help = "blocks of an encoder_decoder's encoder",
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
     .help = "of layers that differ the kinds, in turn: names of [model.kind.NAME], or default, the block "
             "that [model] "
             "describes; none: all layers are that one",
     .weights = kept,
     .since = 14},
    s.layer_kinds);
  v({.name = "layer_groups",
     .help = "layers side by side share their weights, in so many groups; 0: none do",
     .weights = kept,
     .since = 5},
    s.layer_groups, Integers{0, 4096});
  v({.name = "final_norm",
     .help = "a norm follows the last block of each stack; post and none have none",
     .weights = kept,
     .since = 13},
    s.final_norm);
  v({.name = "dropout",
     .help = "of residual branches, and of embeddings and attention where nothing else is said",
     .file_name = "residual_dropout"},
    s.residual_dropout, kDropout);
  v({.name = "embedding_dropout", .help = "of the sum of embeddings", .derived = "dropout"},
    s.embedding_dropout, kDropout);
}

// Positions, and the order in which tokens see each other.
template <typename Spec, typename Visitor>
void for_each_field_of_positions(Spec& s, Visitor& v) {
  using enum WithWeights;
  using enum FieldPlace;
  v({.name = "first_position",
     .help = "of learned and sinusoidal_closed positions: the number of the first token's; 0: as usual",
     .weights = kept,
     .since = 12},
    s.first_position, Integers{0, 1 << 20});
  v({.name = "grid",
     .help = "tokens stand in rows of so many: positions are rows and columns; 0: in one row",
     .weights = kept,
     .since = 7},
    s.grid, Integers{0, 1 << 28});
  v({.name = "axial_width",
     .help = "of learned positions in a grid: columns that tell the row, beside those that tell the column; "
             "0: both have all",
     .weights = kept,
     .since = 10},
    s.axial_width, Integers{0, 1 << 20});
  v({.name = "order",
     .help = "stack: a decoder's tokens see those before them; prefix: those of a prompt also each other",
     .derived = "stack; of a decoder that learns from pairs prefix; of the permutation objective permuted",
     .since = 4},
    s.order);
  v({.name = "stacks_apart",
     .help = "an encoder and a decoder have positions and embedding norms of their own (BART)",
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
     .help = "of tokens, where another than the blocks'; 0: width",
     .weights = kept,
     .since = 5},
    s.embedding_width, Integers{0, 1 << 20});
  v({.name = "embedding_projected_last",
     .help = "it is of the whole embedding, positions and norm included (ALBERT)",
     .weights = kept,
     .since = 5},
    s.embedding_projected_last);
  v({.name = "embedding_scaled",
     .help = "token embeddings times the root of the width",
     .weights = kept,
     .since = 2},
    s.embedding_scaled);
  v({.name = "embedding_unit",
     .help = "token embeddings, and unembeddings, are of length 1 (FixNorm)",
     .weights = kept,
     .since = 7},
    s.embedding_unit);
  v({.name = "embedding_multiplier", .help = "token embeddings times this", .weights = kept, .since = 5},
    s.embedding_multiplier, kFactor);
  v({.name = "embedding_norm",
     .help = "a norm over the sum of embeddings",
     .derived = "false, of an encoder true",
     .weights = kept,
     .since = 2},
    s.embedding_norm);
  v({.name = "segments",
     .help = "embeddings that tell the texts of a pair apart",
     .derived = "0, of an encoder 2",
     .weights = kept,
     .since = 2},
    s.segments, Integers{0, 1 << 16});
  v({.name = "logit_multiplier",
     .help = "logits times this",
     .weights = kept_output,
     .since = 5,
     .needs = &Needs::kLogits},
    s.logit_multiplier, kFactor);
  v({.name = "logit_cap",
     .help = "logits z become cap tanh(z / cap), as in Gemma 2; 0: they stay",
     .weights = kept_output,
     .since = 6,
     .needs = &Needs::kLogits},
    s.logit_cap, Numbers{0, 1e6});
  v({.name = "head_width",
     .help = "a projection before the unembedding; 0: none",
     .derived = "0, of masked and permutation width",
     .since = 2,
     .needs = &Needs::kTokens},
    s.head_width, Integers{0, 1 << 20});
  v({.name = "head_activation",
     .help = "of that projection",
     .derived = "activation",
     .since = 12,
     .needs = &Needs::kHead},
    OrElse{s.head_activation, s.activation});
  v({.name = "unembedding_bias",
     .help = "added to the logits",
     .derived = "false, of masked and permutation true",
     .since = 2,
     .needs = &Needs::kTokens},
    s.unembedding_bias);
  v({.name = "unembedding_scaled",
     .help = "what the unembedding reads is divided by the root of the width (T5's, tied)",
     .weights = kept,
     .since = 3,
     .needs = &Needs::kTokens},
    s.unembedding_scaled);
  v({.name = "tied", .help = "the unembedding is the token embedding", .needs = &Needs::kTokens}, s.tied);
  v({.name = "output", .help = "what it predicts", .since = 3, .place = model_file}, s.output);
  v({.name = "labels", .help = "names of its classes", .since = 3, .place = model_file}, s.labels);
  v({.name = "pooling",
     .help = "a text's vector: its first or last token's, or the mean",
     .derived = "first, of a decoder last",
     .since = 3,
     .needs = &Needs::kPooled},
    s.pooling);
  v({.name = "pooler",
     .help = "a layer between it and the classes",
     .derived = "true where classes are read from the first token",
     .since = 3,
     .needs = &Needs::kSequenceClasses},
    s.pooler);
  v({.name = "pooler_activation", .help = "of that layer", .since = 6, .needs = &Needs::kPooler},
    s.pooler_activation);
  v({.name = "classifier_bias",
     .help = "a number of each class that is added to its score",
     .derived = "true, of a decoder false",
     .since = 12,
     .needs = &Needs::kClasses},
    s.classifier_bias);
  v({.name = "head_dropout",
     .help = "of what classes are read from",
     .derived = "dropout",
     .since = 3,
     .needs = &Needs::kClasses},
    s.head_dropout, kDropout);
  v({.name = "init_std",
     .help = "standard deviation of fresh weights",
     .derived = "0.02, with an encoder 1 / sqrt(width)"},
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

// A field's value for people: "256", "true", "gelu", "[1, 2]".
struct FieldText {
  SpecField field;
  std::string text;
};
// Those of all fields, in the schema's order: of a model without its kinds of blocks, of a block.
std::vector<FieldText> field_texts(const ModelSpec& spec);
std::vector<FieldText> field_texts(const BlockSpec& block);
// Those of a block's fields that are not as in `other`.
std::vector<FieldText> differing_texts(const BlockSpec& block, const BlockSpec& other);

}  // namespace qkv

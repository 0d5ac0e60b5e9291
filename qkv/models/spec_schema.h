// The schema of a ModelSpec: every field is declared here once. TOML, config.json, the comparison with
// model.from, the check of ranges and the help text walk this list.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "qkv/models/block_schema.h"

namespace qkv {

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

// Latents, and how they read and are read.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, LatentSpec>
void for_each_field(Spec& l, Visitor& v) {
  using enum WithWeights;
  v({.name = "latents",
     .help = "number of latent vectors that read the tokens and see each other in their place (Perceiver; 0: "
             "none)",
     .weights = kept,
     .since = 23},
    l.count, Integers{0, 1 << 20});
  v({.name = "latent_width",
     .help = "width of the latents, and of the blocks",
     .derived = "width",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.width, Integers{0, 1 << 20});
  v({.name = "latent_repeats",
     .help = "number of times that the blocks run, with the same weights",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.repeats, Integers{1, 4096});
  v({.name = "latent_read_again",
     .help = "the latents read the tokens before each of these times",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.read_again);
  v({.name = "latent_in_heads",
     .help = "heads by which latents read the tokens",
     .derived = "heads",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.in.heads, Integers{0, 4096});
  v({.name = "latent_in_qk",
     .help = "width of their queries and keys",
     .derived = "latent_width / latent_in_heads",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.in.d_qk, Integers{0, 576});
  v({.name = "latent_in_vo",
     .help = "width of their values",
     .derived = "latent_width / latent_in_heads",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.in.d_vo, Integers{0, 576});
  v({.name = "latent_in_hidden",
     .help = "feed-forward width behind that read",
     .derived = "hidden",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.in.hidden, Integers{0, 1 << 24});
  v({.name = "latent_in_residual",
     .help = "add to the latents the result of their read",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.in.residual);
  v({.name = "latent_out_heads",
     .help = "heads by which the output reads the latents",
     .derived = "heads",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.out.heads, Integers{0, 4096});
  v({.name = "latent_out_qk",
     .help = "width of its queries and keys",
     .derived = "latent_width / latent_out_heads",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.out.d_qk, Integers{0, 576});
  v({.name = "latent_out_vo",
     .help = "width of its values",
     .derived = "latent_width / latent_out_heads",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.out.d_vo, Integers{0, 576});
  v({.name = "latent_out_hidden",
     .help = "feed-forward width behind that read",
     .derived = "4 x its queries' width",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.out.hidden, Integers{0, 1 << 24});
  v({.name = "latent_out_residual",
     .help = "add to the output's queries the result of their read",
     .derived = "true for classes of sequences",
     .weights = kept,
     .since = 23,
     .needs = &Needs::kLatents},
    l.out.residual);
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

// Multi-token prediction.
template <typename Spec, typename Visitor>
requires IsSpec<Spec, MtpSpec>
void for_each_field(Spec& m, Visitor& v) {
  v({.name = "mtp_layers",
     .help = "multi-token prediction: number of modules that predict the tokens after the next one, to draft "
             "for generation (0: none)",
     .since = 18},
    m.layers, Integers{0, 64});
  v({.name = "mtp_form",
     .help =
         "input of each module: the output of the one before (chained), that joined with the embedding of "
         "the token before (joined, DeepSeek-V3), or the last block's output (parallel)",
     .since = 18,
     .needs = &Needs::kMtp},
    m.form);
  v({.name = "mtp_weight",
     .help = "factor on the mean loss of these modules in training",
     .since = 18,
     .needs = &Needs::kMtp},
    m.weight, Numbers{0, 100});
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
  for_each_field(s.latents, v);
  for_each_field(s.features, v);
  for_each_field(s.mtp, v);
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
  v({.name = "position_base",
     .help = "sinusoidal positions: base N of the wavelengths, of which the longest is about 2 pi N",
     .weights = kept,
     .since = 17,
     .needs = &Needs::kSinusoidal},
    s.position_base, Numbers{1, 1e12});
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
  v({.name = "layer_input_width",
     .help =
         "width of the per-layer embeddings that each block reads beside its input, as in Gemma 4 (0: none)",
     .weights = kept,
     .since = 17},
    s.layer_input_width, Integers{0, 1 << 16});
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
  v({.name = "problem",
     .help = "meaning of the classes' scores: one label, several labels, or numbers",
     .since = 17,
     .place = model_file},
    s.problem);
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

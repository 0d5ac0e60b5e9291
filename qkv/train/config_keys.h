// The keys of a configuration: one list, which reading, writing, the fingerprint and the help text walk.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "qkv/train/config.h"

namespace qkv {

// What the list of keys says of one.
struct Key {
  const char* name;
  const char* help;
  const char* derived = nullptr;  // its default where that depends on other keys
  bool decides = true;            // what the run computes
};
template <typename T>
struct Range {
  T least, most;
};
using Choices = std::vector<std::string>;
// Numbers of things.
inline constexpr Range<int64_t> kCount = {1, 1'000'000'000};
// Or none.
inline constexpr Range<int64_t> kCountOrNone = {0, 1'000'000'000};

// Objectives and their names.
inline constexpr std::pair<Objective, const char*> kObjectives[] = {
    {Objective::next_token, "next_token"},
    {Objective::masked, "masked"},
    {Objective::permutation, "permutation"},
    {Objective::sequence_to_sequence, "sequence_to_sequence"},
    {Objective::span_corruption, "span_corruption"},
    {Objective::denoise, "denoise"},
    {Objective::chat, "chat"},
    {Objective::classify, "classify"},
    {Objective::tag, "tag"},
    {Objective::embed, "embed"},
    {Objective::answer, "answer"}};

// Those names.
inline Choices objective_names() {
  Choices names;
  for (const auto& [value, name] : kObjectives) names.emplace_back(name);
  return names;
}

// The keys that say which files are learnt from, and how they are read.
template <typename Visitor>
void visit_files(DataConfig& d, Visitor& v) {
  v({"train", "text files to learn from: one, or a list", "(needed)"}, d.train);
  v({"valid",
     "held-out files; none: the last part of each text, the last pairs of all files, or labelled examples "
     "that split_seed draws"},
    d.valid);
  v({"valid_fraction", "of a text's characters, of all pairs or examples, where valid is empty"},
    d.valid_fraction, Range<double>{0, 0.9});
  v({"separator", "divides a file into documents, e.g. \"<|endoftext|>\""}, d.separator);
  v({"train_target", "translations of train's lines; none: train has rows (.tsv, .csv, .jsonl)"},
    d.train_target);
  v({"valid_target", "translations of valid's lines"}, d.valid_target);
  v({"source_column", "of rows: what a sequence-to-sequence model reads"}, d.source_column);
  v({"target_column", "of rows: what it writes"}, d.target_column);
  v({"prefix", "stands before each source, e.g. \"translate: \""}, d.prefix);
  v({"text_column", "of rows: the text to read or to classify; the question; in .jsonl of tags the words",
     "text, of answers question, of tags tokens"},
    d.text_column);
  v({"second_column", "of rows: the other text of a pair; where the answer stands",
     "(none), of answers context"},
    d.second_column);
  v({"label_column", "of rows: the class; the answer; in .jsonl of tags the tags",
     "label, of answers answer, of tags ner_tags or tags"},
    d.label_column);
  v({"columns", "names of the columns of files without a header"}, d.columns);
  Choices formats = file_format_names();
  formats.insert(formats.begin(), "auto");
  v({"format", "format of the files; auto: by their extensions, behind which .gz or .zst may stand"},
    d.format, formats);
  v({"delimiter", "character between the columns of rows, e.g. \";\"", "comma, in .tsv a tab"}, d.delimiter);
  v({"keep_carriage_returns", "keep Windows line ends (\\r\\n) in texts; false: they become \\n"},
    d.keep_carriage_returns);
  v({"word_column", "of tagged words, from 1; 0: 1, of .conllu 2"}, d.word_column, Range<int64_t>{0, 1000});
  v({"tag_column", "of tagged words, from 1; 0: the last, of .conllu 4"}, d.tag_column,
    Range<int64_t>{0, 1000});
  v({"deduplicate", "of training texts, pairs and examples that are the same keep the first"}, d.deduplicate);
  v({"min_characters", "leave out of training shorter documents, and pairs with a shorter side"},
    d.min_characters, Range<int64_t>{0, int64_t{1} << 40});
  v({"max_characters", "and longer ones; 0: none is too long"}, d.max_characters,
    Range<int64_t>{0, int64_t{1} << 40});
  v({"max_ratio", "and pairs whose one side has so many times the other's characters; 0: any"}, d.max_ratio,
    Range<double>{0, 1e9});
  v({"chat_template", "file of how conversations are written (Jinja)",
     "that of the model it begins with, or ChatML"},
    d.chat_template);
}

// Every key of a configuration. Reading, writing, the fingerprint and the help text all walk this one list.
template <typename Visitor>
void visit(TrainConfig& c, Visitor& v) {
  v.section("data");
  visit_files(c.data, v);
  v({"test", "examples that the best model is judged by at the end"}, c.data.test);
  v({"test_fraction", "of the training examples, where test is empty"}, c.data.test_fraction,
    Range<double>{0, 0.9});
  v({"folds",
     "cross-validation: parts of the training examples, each the test of a model that learns from the "
     "others; 0: none"},
    c.data.folds, Range<int64_t>{0, 1000});
  v({"fold", "train only the model that this part tests; 0: one after the other, into OUT/fold-1, ..."},
    c.data.fold, Range<int64_t>{0, 1000});
  v({"split_seed", "chooses the labelled examples for validation and test"}, c.data.split_seed);
  v({"cache", "keep the tokens of a text for the next run", nullptr, false}, c.data.cache);

  for (MixedSet& set : c.mix) {
    v.section("mix." + set.name);
    std::string its_objective = name_of(set.objective);
    v({"objective", "what is learnt from this data set", "train.objective"}, its_objective,
      objective_names());
    set.objective = objective_from_name(its_objective);
    v({"weight", "how often a micro-batch is of it, in proportion to the others"}, set.weight,
      Range<double>{1e-6, 1e6});
    visit_files(set.data, v);
  }

  v.section("tokenizer");
  v({"path", "an existing tokenizer; none: one is trained"}, c.tokenizer.path);
  v({"source_path", "another for sources, where they have a vocabulary of their own"},
    c.tokenizer.source_path);
  v({"separate", "sequence_to_sequence: one is trained for sources and one for targets"},
    c.tokenizer.separate);
  v({"type", "of the tokenizer to train", "bpe, of an encoder wordpiece"}, c.tokenizer.type,
    Choices{"bpe", "wordpiece", "unigram", "sentencepiece_bpe", "char", "byte", "word"});
  v({"lowercase", "wordpiece: upper case and accents are lost"}, c.tokenizer.lowercase);
  v({"vocab_size", "tokens at most"}, c.tokenizer.vocab_size, Range<int64_t>{1, 1 << 28});
  v({"min_frequency", "of what becomes a token"}, c.tokenizer.min_frequency, kCount);
  v({"add_special",
     "special tokens to add to the tokenizer, e.g. [\"<|im_start|>\", \"<|im_end|>\"]; with model.from the "
     "embeddings grow"},
    c.tokenizer.add_special);

  v.section("model");
  ModelSpec& m = c.model;
  v({"preset", "a published architecture, whose keys stand for those that are not given", nullptr, false},
    c.preset);
  v({"size", "of a preset's blocks: tiny, small or base", nullptr, false}, c.size);
  v({"from", "begin with the weights of this model or run, and a head of its own", nullptr, true}, c.from);
  std::string architecture = name_of(m.architecture);
  v({"architecture", "decoder: continues texts; encoder: reads them; encoder_decoder: source to target"},
    architecture, Choices{"decoder", "encoder", "encoder_decoder"});
  m.architecture = architecture_from_name(architecture);
  RecurrenceSpec& r = m.recurrence;
  std::string encoder = name_of(r.encoder), decoder = name_of(r.decoder), looks = name_of(r.attention);
  v({"encoder", "of an encoder_decoder: blocks of attention, or a recurrence"}, encoder,
    Choices{"transformer", "lstm", "gru"});
  r.encoder = cell_from_name(encoder);
  v({"decoder", "likewise"}, decoder, Choices{"transformer", "lstm", "gru"});
  r.decoder = cell_from_name(decoder);
  v({"bidirectional", "a recurrent encoder reads both ways", "true where the decoder looks at the source"},
    r.bidirectional);
  v({"source_attention",
     "of a recurrent decoder; additive: before each step (Bahdanau); dot, local: after it (Luong)",
     "none, of a recurrent decoder dot"},
    looks, Choices{"none", "additive", "dot", "local"});
  r.attention = source_attention_from_name(looks);
  v({"local_window", "of local attention: tokens on each side of the place it predicts"}, r.window,
    Range<int64_t>{1, 1 << 20});
  v({"reverse_source", "the encoder reads its source from the end (Sutskever)"}, m.source_reversed);
  v({"context", "tokens that it can see"}, m.context, Range<int64_t>{1, 1 << 28});
  v({"memory",
     "tokens before a window whose layers' inputs attention sees in training and in qkv eval, without "
     "gradients "
     "(Transformer-XL); 0: none"},
    m.memory, Range<int64_t>{0, 1 << 24});
  v({"width", "of an embedding"}, m.width, Range<int64_t>{1, 1 << 20});
  v({"layers", "blocks; of an encoder_decoder the decoder's"}, m.layers, Range<int64_t>{1, 4096});
  v({"encoder_layers", "blocks of an encoder_decoder's encoder", "layers, or 0"}, m.encoder_layers,
    Range<int64_t>{0, 4096});
  v({"encoder_width", "of an encoder_decoder's encoder, where another than width; 0: the same"},
    m.encoder.width, Range<int64_t>{0, 1 << 20});
  v({"encoder_heads", "likewise"}, m.encoder.heads, Range<int64_t>{0, 4096});
  v({"encoder_hidden", "likewise"}, m.encoder.hidden, Range<int64_t>{0, 1 << 24});
  v({"encoder_expert_first", "the encoder's first layer with experts, counted from 0"},
    m.encoder.expert_first, Range<int64_t>{0, 4095});
  v({"encoder_expert_every", "of its layers from there on, each so-many-th has experts; 0: as the decoder's"},
    m.encoder.expert_every, Range<int64_t>{0, 4096});
  v({"heads", "of attention"}, m.attention.heads, Range<int64_t>{1, 4096});
  v({"kv_heads", "fewer: query heads share keys and values", "heads"}, m.attention.kv_heads,
    Range<int64_t>{1, 4096});
  v({"d_qk", "width of a head's queries and keys", "width / heads"}, m.attention.d_qk,
    Range<int64_t>{1, 576});
  v({"d_vo", "width of a head's values", "width / heads"}, m.attention.d_vo, Range<int64_t>{1, 576});
  v({"head_sizes",
     "of heads of different sizes, each one's width of queries, keys and values, e.g. [16, 16, 32, 64]"},
    m.attention.head_sizes, Range<int64_t>{1, 576});
  v({"lora_rank",
     "with from: its weights stay, and products have low-rank changes of this rank beside them, which alone "
     "are "
     "saved; 0: everything is learnt"},
    m.lora.rank, Range<int64_t>{0, 1 << 16});
  v({"lora_alpha", "changes count lora_alpha / lora_rank", "2 x lora_rank"}, m.lora.alpha,
    Range<double>{0, 1e6});
  v({"lora_dropout", "of what changes are made of"}, m.lora.dropout, Range<double>{0, 0.95});
  v({"lora_targets",
     "products that are changed, by their names in the model's file or the ends of those, e.g. [\"q_proj\", "
     "\"v_proj\"]; \"all-linear\": all of its blocks"},
    m.lora.targets);
  v({"attention_bias", "biases of queries, keys and values"}, m.attention.bias);
  v({"attention_out_bias", "of the projection of their output", "attention_bias"}, m.attention.out_bias);
  v({"attention_scaled", "scores are divided by sqrt(d_qk)"}, m.attention.scaled);
  v({"attention_scale", "scores are multiplied by it; 0: by 1 / sqrt(d_qk)"}, m.attention.scale,
    Range<double>{0, 1e6});
  v({"kv_latent",
     "keys and values are made of a vector of this width, which alone is remembered (MLA); 0: of x"},
    m.attention.latent, Range<int64_t>{0, 576});
  v({"query_latent", "queries likewise; 0: of x"}, m.attention.query_latent, Range<int64_t>{0, 1 << 20});
  v({"attention_clip",
     "queries, keys and values of self-attention are cut off beyond it, as in OLMo and MPT; 0: they stay"},
    m.attention.clip, Range<double>{0, 1e6});
  v({"attention_cap", "scaled scores s become cap tanh(s / cap), as in Gemma 2; 0: they stay"},
    m.attention.cap, Range<double>{0, 1e6});
  v({"attention_sinks", "each head has a learned score without a value, as in gpt-oss"}, m.attention.sinks);
  std::string query_key_norm = name_of(m.attention.query_key_norm);
  v({"query_key_norm",
     "of queries and keys: an RMSnorm of each head or of all together (whole), or Algorithm 6 of each head, "
     "by "
     "the same weights (layer) or its own (layer_heads)"},
    query_key_norm, Choices{"none", "heads", "whole", "layer", "layer_heads"});
  m.attention.query_key_norm = query_key_norm_from_name(query_key_norm);
  v({"patterns",
     "which tokens a token sees, of layers in turn: \"all\"; \"window 256\" (dilated 2); \"stride 64\"; "
     "\"global "
     "2\"; \"block 64\" (neighbours 1, summary 8, ends, random 3), or several of these"},
    m.attention.patterns);
  v({"shared_query_key",
     "of layers in turn: 1 where the queries, made of length sqrt(d_qk), are the keys, and a token sees "
     "itself "
     "last (Reformer)"},
    m.attention.shared_query_key, Range<int64_t>{0, 1});
  v({"hashed_beyond", "of these layers: longer sequences would be hashed, and are refused; 0: none is"},
    m.attention.hashed_beyond, Range<int64_t>{0, 1 << 28});
  v({"global_projections", "tokens that see all have queries, keys and values of their own (Longformer)"},
    m.attention.global_projections);
  v({"hidden", "width of the feed-forward network", "4 x width"}, m.hidden, Range<int64_t>{1, 1 << 24});
  std::string activation = name_of(m.activation);
  v({"activation", "of the feed-forward network", "gelu_tanh, of an encoder gelu"}, activation,
    Choices{"gelu_tanh", "gelu", "gelu_quick", "relu", "relu_squared", "silu"});
  m.activation = activation_from_name(activation);
  v({"dropout", "of residual branches, and of embeddings and attention where nothing else is said"},
    m.residual_dropout, Range<double>{0, 0.95});
  v({"attention_dropout", "of the probabilities of attention", "dropout"}, m.attention.dropout,
    Range<double>{0, 0.95});
  v({"embedding_dropout", "of the sum of embeddings", "dropout"}, m.embedding_dropout,
    Range<double>{0, 0.95});
  std::string placement = name_of(m.norm_placement), positions = name_of(m.positions);
  v({"norm",
     "pre: x + f(norm(x)); post: norm(x + f(x)); sandwich: x + norm(f(norm(x))); branch: x + norm(f(x)); "
     "stream: norm(x) + f(norm(x))",
     "pre, of an encoder post"},
    placement, Choices{"pre", "post", "sandwich", "branch", "none", "stream"});
  m.norm_placement = norm_placement_from_name(placement);
  v({"final_norm", "a norm follows the last block of each stack; post and none have none"}, m.final_norm);
  v({"positions",
     "a learned table, a formula; relative: biases of the scores by distance (T5); toeplitz: one for each "
     "distance; rotary: turned queries "
     "and "
     "keys; alibi: scores fall with the distance",
     "learned, of recurrences alone none"},
    positions,
    Choices{"learned", "sinusoidal", "sinusoidal_paper", "sinusoidal_halves", "sinusoidal_closed", "relative",
            "toeplitz", "rotary", "alibi", "alibi_evens_first", "alibi_scaled", "none"});
  m.positions = positions_from_name(positions);
  v({"first_position",
     "of learned and sinusoidal_closed positions: the number of the first token's; 0: as usual"},
    m.first_position, Range<int64_t>{0, 1 << 20});
  v({"grid", "tokens stand in rows of so many: positions are rows and columns; 0: in one row"}, m.grid,
    Range<int64_t>{0, 1 << 28});
  v({"axial_width",
     "of learned positions in a grid: columns that tell the row, beside those that tell the column; "
     "0: both have all"},
    m.axial_width, Range<int64_t>{0, 1 << 20});
  RotarySpec& rotary = m.attention.rotary;
  v({"rotary_width", "of rotary positions: columns of a head that are turned", "d_qk"}, rotary.width,
    Range<int64_t>{0, 576});
  v({"rotary_base", "of the angles: more for longer contexts"}, rotary.base, Range<double>{1, 1e12});
  std::string layout = name_of(rotary.layout), scaling = name_of(rotary.scaling);
  v({"rotary_layout", "which columns make a pair"}, layout, Choices{"halves", "interleaved"});
  rotary.layout = rotary_layout_from_name(layout);
  v({"rotary_scaling", "for contexts longer than that of the first training"}, scaling,
    Choices{"none", "linear", "dynamic", "yarn", "llama3", "longrope"});
  rotary.scaling = rotary_scaling_from_name(scaling);
  v({"rotary_factor", "how much longer"}, rotary.factor, Range<double>{1, 1e6});
  v({"rotary_original_context", "that of the first training", "context"}, rotary.original_context,
    Range<int64_t>{0, 1 << 28});
  v({"rotary_low", "of yarn and llama3: pairs that turn less often in it are slowed down"}, rotary.low,
    Range<double>{0, 1e6});
  v({"rotary_high", "those that turn more often are not", "4, of yarn 32"}, rotary.high,
    Range<double>{0, 1e6});
  v({"rotary_magnitude", "of cosines and sines", "1, of yarn 0.1 ln(rotary_factor) + 1"}, rotary.magnitude,
    Range<double>{0, 1e3});
  v({"rotary_short_factors", "of longrope: how much each pair is slowed down up to the original context"},
    rotary.short_factors, Range<double>{1e-6, 1e6});
  v({"rotary_long_factors", "and beyond it"}, rotary.long_factors, Range<double>{1e-6, 1e6});
  RelativeSpec& relative = m.attention.relative;
  std::string relative_attention = name_of(relative.kind);
  v({"relative_attention",
     "scores know distances by vectors: of Shaw (shaw_both: of keys, too), Transformer-XL or DeBERTa "
     "(disentangled)"},
    relative_attention, Choices{"none", "shaw", "shaw_both", "transformer_xl", "disentangled"});
  relative.kind = relative_attention_from_name(relative_attention);
  v({"relative_attention_distance", "from which on all share one; of transformer_xl 0: none do",
     "16, of disentangled context, of transformer_xl 0"},
    relative.distance, Range<int64_t>{0, 1 << 16});
  v({"relative_attention_buckets",
     "of disentangled: so many distances on each side have a vector, far ones share; 0: all have"},
    relative.buckets, Range<int64_t>{0, 1 << 16});
  v({"relative_by_content", "of disentangled: a query meets the vector of a distance"}, relative.by_content);
  v({"relative_by_position", "of disentangled: a key does"}, relative.by_position);
  v({"relative_shared", "of disentangled: they are projected as queries and keys are"},
    relative.shared_projections);
  v({"relative_norm", "of disentangled: a norm of them"}, relative.normed);
  v({"relative_segments", "of transformer_xl: scores know whether two tokens are of one segment (XLNet)"},
    relative.segments);
  std::string branches = name_of(m.branches);
  v({"branches",
     "attention and feed-forward network in turn, or beside each other with two norms or one; reversible: in "
     "turn, between two streams (Reformer)"},
    branches, Choices{"serial", "parallel", "one_norm", "reversible"});
  m.branches = branches_from_name(branches);
  std::string order = name_of(m.order);
  v({"order", "stack: a decoder's tokens see those before them; prefix: those of a prompt also each other",
     "stack; of a decoder that learns from pairs prefix; of the permutation objective permuted"},
    order, Choices{"stack", "prefix", "permuted"});
  m.order = order_from_name(order);
  v({"relative_buckets", "of relative positions: distances with a bias of their own"}, m.relative_buckets,
    Range<int64_t>{4, 1 << 16});
  v({"relative_distance", "from which on all share one; of toeplitz positions, too"}, m.relative_distance,
    Range<int64_t>{1, 1 << 24});
  std::string normalization = name_of(m.normalization);
  v({"normalization",
     "layer: Algorithm 6 (_scale: without beta; _plain: without weights); rms: neither centred nor shifted "
     "(_plus_one: its weight is added to 1); scale: rows of one length; capsule: the squash function; batch: "
     "of columns"},
    normalization,
    Choices{"layer", "layer_scale", "layer_plain", "rms", "rms_plus_one", "scale", "capsule", "batch"});
  m.normalization = normalization_from_name(normalization);
  v({"gated", "the feed-forward network has a second factor"}, m.gated);
  v({"feed_forward_bias", "biases in the feed-forward network"}, m.feed_forward_bias);
  v({"hidden_layers", "of the feed-forward network"}, m.hidden_layers, Range<int64_t>{1, 64});
  ExpertsSpec& x = m.experts;
  v({"experts", "feed-forward networks of a layer, of which each token goes through a few; 0: one for all"},
    x.count, Range<int64_t>{0, 1 << 16});
  v({"experts_chosen", "of a token: those with the highest affinities"}, x.chosen,
    Range<int64_t>{1, 1 << 16});
  v({"expert_hidden", "width of an expert", "hidden"}, x.hidden, Range<int64_t>{0, 1 << 24});
  v({"expert_first", "the first layer with experts, counted from 0"}, x.first, Range<int64_t>{0, 4095});
  v({"expert_every", "of the layers from there on, each so-many-th has experts"}, x.every,
    Range<int64_t>{1, 4096});
  std::string router_score = name_of(x.score);
  v({"router_score", "affinities: a softmax over experts, or a sigmoid of each (DeepSeek-V3)"}, router_score,
    Choices{"softmax", "sigmoid"});
  x.score = router_score_from_name(router_score);
  v({"experts_renormalized", "the weights of the chosen are divided by their sum",
     "true, of one chosen false"},
    x.renormalized);
  v({"expert_scale", "and times this"}, x.scale, Range<double>{1e-6, 1e6});
  v({"expert_groups", "experts are chosen from the best of so many groups"}, x.groups,
    Range<int64_t>{1, 1 << 16});
  v({"expert_groups_chosen", "how many of them"}, x.chosen_groups, Range<int64_t>{1, 1 << 16});
  v({"expert_choice_bias", "each expert has a bias for the choice alone, which no gradient reaches"},
    x.choice_bias);
  v({"expert_choice_rate", "what it loses at each pass where the expert was chosen too often, or gains"},
    x.choice_rate, Range<double>{0, 1e6});
  v({"expert_capacity", "tokens of a sequence that an expert takes; 0: all"}, x.capacity,
    Range<int64_t>{0, int64_t{1} << 40});
  v({"expert_balance", "of the load-balancing term that training adds"}, x.balance, Range<double>{0, 1e6});
  v({"shared_hidden", "of a network beside the experts that all tokens go through; 0: none"}, x.shared_hidden,
    Range<int64_t>{0, 1 << 24});
  v({"shared_gated", "it counts a sigmoid of its own"}, x.shared_gated);
  v({"embedding_width", "of tokens, where another than the blocks'; 0: width"}, m.embedding_width,
    Range<int64_t>{0, 1 << 20});
  v({"embedding_projected_last", "it is of the whole embedding, positions and norm included (ALBERT)"},
    m.embedding_projected_last);
  v({"layer_groups", "layers side by side share their weights, in so many groups; 0: none do"},
    m.layer_groups, Range<int64_t>{0, 4096});
  v({"embedding_scaled", "token embeddings times the root of the width"}, m.embedding_scaled);
  v({"embedding_unit", "token embeddings, and unembeddings, are of length 1 (FixNorm)"}, m.embedding_unit);
  v({"embedding_multiplier", "token embeddings times this"}, m.embedding_multiplier,
    Range<double>{-1e6, 1e6});
  v({"residual_multiplier", "what a branch adds times this"}, m.residual_multiplier,
    Range<double>{-1e6, 1e6});
  v({"logit_multiplier", "logits times this"}, m.logit_multiplier, Range<double>{-1e6, 1e6});
  v({"logit_cap", "logits z become cap tanh(z / cap), as in Gemma 2; 0: they stay"}, m.logit_cap,
    Range<double>{0, 1e6});
  v({"embedding_norm", "a norm over the sum of embeddings", "false, of an encoder true"}, m.embedding_norm);
  v({"segments", "embeddings that tell the texts of a pair apart", "0, of an encoder 2"}, m.segments,
    Range<int64_t>{0, 1 << 16});
  v({"head_width", "a projection before the unembedding; 0: none", "0, of masked and permutation width"},
    m.head_width, Range<int64_t>{0, 1 << 20});
  std::string head_activation = name_of(m.activation_of_head());
  v({"head_activation", "of that projection", "activation"}, head_activation,
    Choices{"gelu_tanh", "gelu", "gelu_quick", "relu", "relu_squared", "silu", "tanh"});
  m.head_activation = activation_from_name(head_activation);
  v({"unembedding_bias", "added to the logits", "false, of masked and permutation true"}, m.unembedding_bias);
  std::string pooling = name_of(m.pooling);
  v({"unembedding_scaled", "what the unembedding reads is divided by the root of the width (T5's, tied)"},
    m.unembedding_scaled);
  v({"stacks_apart", "an encoder and a decoder have positions and embedding norms of their own (BART)"},
    m.stacks_apart);
  v({"pooling", "a text's vector: its first or last token's, or the mean", "first, of a decoder last"},
    pooling, Choices{"first", "last", "mean"});
  m.pooling = pooling_from_name(pooling);
  v({"pooler", "a layer between it and the classes", "true where classes are read from the first token"},
    m.pooler);
  std::string pooler_activation = name_of(m.pooler_activation);
  v({"pooler_activation", "of that layer"}, pooler_activation,
    Choices{"tanh", "gelu_tanh", "gelu", "gelu_quick", "relu", "relu_squared", "silu"});
  m.pooler_activation = activation_from_name(pooler_activation);
  v({"classifier_bias", "a number of each class that is added to its score", "true, of a decoder false"},
    m.classifier_bias);
  v({"head_dropout", "of what classes are read from", "dropout"}, m.head_dropout, Range<double>{0, 0.95});
  v({"norm_epsilon", "added to the variance", "1e-05, of an encoder 1e-12"}, m.norm_epsilon,
    Range<double>{0, 0.1});
  v({"tied", "the unembedding is the token embedding"}, m.tied);
  v({"init_std", "standard deviation of fresh weights", "0.02, with an encoder 1 / sqrt(width)"}, m.init_std,
    Range<double>{0, 10});

  v.section("train");
  std::string objective = name_of(c.objective);
  v({"objective", "what is learnt", "next_token, of an encoder masked, of two stacks sequence_to_sequence"},
    objective, objective_names());
  c.objective = objective_from_name(objective);
  v({"mask_rate", "of the tokens, to be found (masked, permutation)"}, c.masking.rate,
    Range<double>{0.001, 0.9});
  v({"mask_random", "of these, that stand as another token"}, c.masking.random, Range<double>{0, 1});
  v({"mask_keep", "of these, that stand as they are"}, c.masking.keep, Range<double>{0, 1});
  v({"mask_whole_words", "hide all tokens of a word, or none"}, c.masking.whole_words);
  v({"next_sentence", "also tell whether the second half of a piece is its own (masked)"},
    c.masking.next_sentence);
  v({"out", "folder of the run", nullptr, false}, c.out);
  v({"steps", "updates of the weights"}, c.steps, kCount);
  v({"epochs", "instead of steps: passes over the training data, e.g. 3 or 0.5; 0: steps counts", nullptr,
     false},
    c.epochs, Range<double>{0, 1e6});
  v({"span_density", "of the tokens, taken away in spans (span_corruption)"}, c.spans.density,
    Range<double>{0.001, 0.9});
  v({"span_length", "of a span on average (span_corruption, denoise)"}, c.spans.mean_length,
    Range<double>{1, 1000});
  c.noise.mean_length = c.spans.mean_length;
  v({"infill", "of the tokens, in spans that a mask stands for (denoise)"}, c.noise.infill,
    Range<double>{0, 0.9});
  v({"deletion", "of the other tokens, left out (denoise)"}, c.noise.deletion, Range<double>{0, 0.9});
  v({"permute_sentences", "sentences stand in another order (denoise)"}, c.noise.permute);
  v({"token_drop", "of a text's tokens, left out of a training step (classify)"}, c.augmentation.drop,
    Range<double>{0, 0.9});
  v({"token_swap", "of them, that change places with the next (classify)"}, c.augmentation.swap,
    Range<double>{0, 0.9});
  v({"token_mask", "of them, hidden (classify, tag)"}, c.augmentation.mask, Range<double>{0, 0.9});
  v({"batch", "windows of a micro-batch; \"fit\": as many as fit into memory"}, c.batch, kCount, "fit");
  v({"window", "tokens of a text that are read together (next_token); 0: the model's context"}, c.window,
    Range<int64_t>{0, 1 << 24});
  v({"batch_tokens", "of a micro-batch of sequences: all but next_token's"}, c.batch_tokens,
    Range<int64_t>{2, 1 << 24});
  v({"accumulate", "micro-batches of a step"}, c.accumulate, kCount);
  v({"seed", "of all that is random"}, c.seed);
  v({"precision", "auto: bf16 where the processor gains from it"}, c.precision,
    Choices{"auto", "f32", "bf16"});
  v({"recompute", "keep no activations inside blocks: less memory for a quarter more time", nullptr, false},
    c.recompute);
  v({"memory_gb", "what the run may take; 0: what is free", nullptr, false}, c.memory_gb,
    Range<double>{0, 1e6});
  OptimizerConfig& o = c.step.optimizer;
  v({"optimizer", "the update rule"}, o.name, optimizer_names());
  ScheduleConfig& s = c.step.schedule;
  v({"learning_rate", "the highest"}, s.learning_rate, Range<double>{0, 1e6});
  v({"min_learning_rate", "where the schedule ends", "learning_rate / 10"}, s.min_learning_rate,
    Range<double>{0, 1e6});
  v({"schedule", "after the warm-up"}, s.name, schedule_names());
  v({"warmup_steps", "until the highest rate", "100, or steps / 10 where less; of one_cycle 0.3 steps"},
    s.warmup_steps, kCountOrNone);
  v.warmup_fraction({"warmup_fraction", "instead of warmup_steps: a part of all steps, e.g. 0.02", "(none)"},
                    Range<double>{0, 1});
  v({"weight_decay", "of matrices, not of norms and biases", "0.1 of adamw, lion, adafactor; else 0"},
    o.weight_decay, Range<double>{0, 100});
  v({"momentum", "of sgd"}, o.momentum, Range<double>{0, 0.9999999});
  v({"nesterov", "sgd looks ahead along its momentum"}, o.nesterov);
  v({"beta1", "of adam, adamw, lion"}, o.beta1, Range<double>{0, 0.9999999});
  v({"beta2", "of adam, adamw, lion, rmsprop"}, o.beta2, Range<double>{0, 0.9999999});
  v({"epsilon", "of adam, adamw, rmsprop, adagrad"}, o.epsilon, Range<double>{0, 1});
  v({"clip", "the gradient's norm at most; 0: no limit"}, c.step.clip, Range<double>{0, 1e9});
  v({"label_smoothing", "part of the target spread over the vocabulary"}, c.step.terms.label_smoothing,
    Range<double>{0, 0.9});
  v({"z_loss", "keeps the softmax's denominator near 1, e.g. 1e-4"}, c.step.terms.z_loss,
    Range<double>{0, 1});
  v({"layer_decay", "a block's learning rate, times that of the block above; embeddings are lowest"},
    c.step.layer_decay, Range<double>{0.01, 1});
  v({"freeze", "parameters that stay as they are, e.g. [\"embedding.*\", \"encoder.block.0.*\"]"},
    c.step.freeze);
  v({"layer_drop", "probability that a step skips a block"}, c.step.layer_drop, Range<double>{0, 0.95});
  v({"gradient_noise", "eta of the variance eta / (1 + step)^0.55"}, c.step.gradient_noise,
    Range<double>{0, 1e3});
  v({"weight_noise", "standard deviation, while a gradient is computed"}, c.step.weight_noise,
    Range<double>{0, 10});
  v({"adversarial", "a step along the embeddings' gradient, from where another one is added (FGM), e.g. 0.5"},
    c.step.adversarial, Range<double>{0, 1e3});
  v({"ema", "decay of averaged weights, which are then validated and kept as the best, e.g. 0.999"},
    c.step.ema, Range<double>{0, 0.9999999});
  v({"log_every", "steps", nullptr, false}, c.log_every, kCount);
  v({"eval_every", "steps"}, c.eval_every, kCount);
  v({"eval_windows", "of the validation text, on the way; 0: all"}, c.eval_windows, kCountOrNone);
  v({"eval_bleu",
     "validation pairs translated greedily at each evaluation, for their BLEU and exact matches; 0: none"},
    c.eval_bleu, kCountOrNone);
  v({"best_by", "the score that tells the best model", "loss, of classes accuracy or f1"}, c.best_by,
    Choices{"auto", "loss", "accuracy", "macro_f1", "matthews", "f1", "exact_match", "bleu"});
  v({"patience", "stop after so many evaluations without a better one; 0: never"}, c.patience, kCountOrNone);
  v({"checkpoint_every", "steps", nullptr, false}, c.checkpoint_every, kCount);
  v({"keep", "checkpoints kept, besides the best model; qkv average makes one of several", nullptr, false},
    c.keep, kCount);
  v({"sample_tokens", "of a text written at each evaluation, for the report; 0: none", nullptr, false},
    c.sample_tokens, kCountOrNone);
  v({"sample_prompt", "what it continues; none: the start of the validation text", nullptr, false},
    c.sample_prompt);
}

}  // namespace qkv

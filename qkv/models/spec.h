// The specification of a model: an architecture as data, with names from the literature.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "qkv/batch/output.h"
#include "qkv/batch/pair_layout.h"
#include "qkv/kernels/activation.h"
#include "qkv/models/feature_spec.h"
#include "qkv/models/latent_spec.h"
#include "qkv/models/mixer_spec.h"
#include "qkv/models/mtp_spec.h"
#include "qkv/nn/adapter_spec.h"
#include "qkv/nn/attention_spec.h"
#include "qkv/nn/experts_spec.h"
#include "qkv/nn/feed_forward_spec.h"
#include "qkv/nn/norm_spec.h"
#include "qkv/nn/recurrence_spec.h"
#include "qkv/nn/residual_spec.h"
#include "qkv/ops/recurrence_spec.h"

namespace qkv {

// The stacks of a model, by the algorithms of Phuong & Hutter.
enum class Architecture : uint8_t {
  decoder,          // Algorithm 10: each token sees those before it
  encoder,          // Algorithm 9: each token sees all
  encoder_decoder,  // Algorithm 8: the decoder also sees the encoder's output for a source
};

// Position encodings. Those up to fourier are added to the embeddings, the others act in the
// blocks.
enum class Positions : uint8_t {
  learned,            // a table W_p
  sinusoidal,         // wavelengths from 2 pi to 10000 2 pi, positions from 0 (Vaswani et al. 2017)
  sinusoidal_paper,   // as section 5 of Phuong & Hutter prints it: l_max for 10000, positions from 1
  sinusoidal_halves,  // the sines, then the cosines (Marian)
  sinusoidal_closed,  // the same, positions from 2 and the last wavelength 10000 2 pi itself (tensor2tensor,
                      // XGLM)
  fourier,   // the position in [-1, 1], and its sines and cosines at evenly spaced frequencies (Perceiver)
  relative,  // self-attention adds a bias by distance (T5)
  toeplitz,  // the same with a number for each distance
  rotary,    // queries and keys are rotated (attention.rotary; Su et al. 2021)
  alibi,     // scores fall with the distance (Press et al. 2022)
  alibi_evens_first,  // the same with MPT's order of slopes if the number of heads is no power of two
  alibi_scaled,       // the same, added before scores are scaled (Falcon)
  alibi_signed,       // in an encoder, scores of keys after the query rise with the distance instead
  none,  // a recurrence knows the order of its input; a decoder infers it from what each token sees
         // (Kazemnejad et al. 2023); relative attention knows distances (nn/relative.h)
};

// Which tokens a token sees.
enum class Order : uint8_t {
  stack,     // all in an encoder, those before it in a decoder
  prefix,    // in a decoder the first tokens (a prompt or a source) also see each other (prefix LM)
  permuted,  // in an encoder all but the masked ones (permutation LM; Yang et al. 2019, XLNet)
};

// How the rows of a sequence become one vector.
enum class Pooling : uint8_t {
  first,  // the first token's row (BERT's [CLS])
  last,   // the last token's row: in a decoder only that token sees all others
  mean,
};

// The recurrences of an encoder-decoder: in both stacks, as before the transformer, or in one of them.
struct RecurrenceSpec {
  Cell encoder = Cell::none, decoder = Cell::none;  // none: transformer blocks
  bool bidirectional = false;  // the encoder reads both ways, with half of the width each (Schuster 1997)
  SourceAttention attention = SourceAttention::none;  // how the decoder looks at the source
  int64_t window = 10;  // local attention: tokens on each side of the predicted place

  bool any() const { return encoder != Cell::none || decoder != Cell::none; }
  bool operator==(const RecurrenceSpec&) const = default;
};

// Sizes of the encoder of an encoder-decoder that differ from its decoder's; 0: the same.
struct EncoderShape {
  int64_t width = 0, heads = 0, hidden = 0;
  int64_t context = 0;                         // maximum number of features or tokens that it reads
  int64_t expert_first = 0, expert_every = 0;  // its layers with experts; every 0: as in the decoder

  bool any() const { return width > 0 || heads > 0 || hidden > 0 || context > 0 || expert_every > 0; }
  bool operator==(const EncoderShape&) const = default;
};

// Low-rank adapters on the frozen weights of another model (LoRA).
struct LoraSpec {
  int64_t rank = 0;  // 0: no adapters
  float alpha = 0;   // adapters are multiplied by alpha / rank
  float dropout = 0;
  std::vector<std::string> targets = {};  // modules by their names in files, or by ends of names
  // Other ranks and alphas, for modules with these names or ends of names.
  std::vector<std::pair<std::string, int64_t>> ranks = {};
  std::vector<std::pair<std::string, float>> alphas = {};
  bool rank_stabilized = false;            // multiplied by alpha / sqrt(rank) instead (Kalajdzievski 2023)
  std::string base = {};                   // the other model's directory
  std::vector<AdapterSpec> adapters = {};  // the resulting adapters of this model

  bool any() const { return rank > 0; }
  bool operator==(const LoraSpec&) const = default;
};

// A block: a mixer, a feed-forward network or experts, norms and residual connections.
struct BlockSpec {
  MixerSpec mixer = {};
  AttentionSpec attention = {};  // attention of the mixer, if it attends, and cross-attention
  int64_t hidden = 0;            // d_mlp
  Activation activation = Activation::gelu_tanh;
  bool gated = false;  // gated feed-forward network (Shazeer 2020)
  bool feed_forward_bias = true;
  float gate_limit = 0;       // gated: limit of both halves, and 1 more in the second (gpt-oss); 0: none
  int64_t hidden_layers = 1;  // hidden layers of the feed-forward network
  ChannelMix channel_mix = ChannelMix::none;  // the feed-forward network also reads the row before (RWKV)
  ExpertsSpec experts = {};                   // mixture of experts in its place, and the layers that have it
  Normalization normalization = Normalization::layer;
  NormPlacement norm_placement = NormPlacement::pre;
  float norm_epsilon = 1e-5F;
  bool mixer_norm = true;  // pre-norm blocks: false: the mixer reads the stream itself (ModernBERT's first)
  Branches branches = Branches::serial;
  float residual_multiplier = 1;  // factor on each residual branch
  bool block_scaled = false;      // each block has a fixed number that multiplies its output (Gemma 4)
  Positions positions = Positions::learned;
  // Biases by distance beside positions that are none themselves: relative, toeplitz or ALiBi's; none: none.
  Positions distance_bias = Positions::none;
  int64_t relative_buckets = 32, relative_distance = 128;  // for relative positions
  bool relative_by_layer = false;                          // each layer has biases of its own (UMT5)

  NormSpec norm() const { return {normalization, norm_epsilon}; }
  FeedForwardSpec feed_forward() const {
    return {hidden, activation, gated, feed_forward_bias, hidden_layers, gate_limit, channel_mix};
  }
  // The kind of biases by distance, if there are any; else `positions`.
  Positions bias() const { return distance_bias != Positions::none ? distance_bias : positions; }
  bool operator==(const BlockSpec&) const = default;
};

// A kind of block that some layers have, if layers differ.
struct BlockKind {
  std::string name;
  BlockSpec block;
  bool operator==(const BlockKind&) const = default;
};

// A model: embeddings, one or two stacks of blocks, a head. Fields are named as in the literature. Its own
// BlockSpec is the block of all layers to which `layer_kinds` gives no other.
struct ModelSpec : BlockSpec {
  Architecture architecture = Architecture::decoder;
  int64_t vocab_size = 0;         // N_V
  int64_t source_vocab_size = 0;  // vocabulary size of an encoder-decoder's sources, if different; else 0
  int64_t context = 0;            // l_max
  int64_t width = 0;              // d_e
  int64_t layers = 0;             // L; L_dec in an encoder-decoder
  int64_t encoder_layers = 0;     // L_enc in an encoder-decoder, else 0
  EncoderShape encoder = {};
  LatentSpec latents = {};  // if an encoder has any, the blocks' width and heads are theirs
  // Features that an encoder reads beside tokens; the encoder of an encoder-decoder reads them instead of
  // tokens.
  FeatureSpec features = {};
  // Kinds of blocks, sorted by name, and the kind of each layer in turn: one of these names, or "default".
  // Empty: all layers have the same block.
  std::vector<BlockKind> kinds = {};
  std::vector<std::string> layer_kinds = {};
  std::vector<std::string> encoder_layer_kinds = {};  // an encoder-decoder's encoder; empty: as layer_kinds
  bool final_norm = true;                             // each stack ends with a norm; never with post and none
  // The first token's position; 0: the usual 2. For sinusoidal_closed it enters the angle (M2M-100). For
  // learned positions it matters only in files, as the row of their table (RoBERTa).
  int64_t first_position = 0;
  // N of sinusoidal positions: their longest wavelength is about 2 pi N. Never of sinusoidal_paper, whose N
  // is the context.
  double position_base = 10000;
  // Columns of a grid of tokens: learned, sinusoidal and rotary positions are rows and columns. 0: tokens
  // are in one row.
  int64_t grid = 0;
  // For learned positions in a grid: dimensions for the row; the others are for the column (Ho et al. 2019,
  // axial positions). 0: both have all dimensions and are added.
  int64_t axial_width = 0;
  // Tokens before a window, in training and evaluation, whose layer inputs attention also sees (Dai et al.
  // 2019, Transformer-XL); 0: none.
  int64_t memory = 0;
  bool stacks_apart = false;      // each of two stacks has its own positions and embedding norm
  bool embedding_scaled = false;  // token embeddings times sqrt(d_e) (Vaswani et al.)
  int64_t layer_groups = 0;  // neighbouring layers share weights, in so many groups (ALBERT); 0: no sharing
  int64_t embedding_width = 0;  // width of token embeddings, if not the blocks' (OPT); 0: the same
  // True: the whole embedding is projected to the blocks' width, with a bias (ALBERT). False: only token
  // embeddings are (OPT).
  bool embedding_projected_last = false;
  bool embedding_unit = false;     // token (un)embeddings have length 1 (Nguyen & Chiang 2018, FixNorm)
  float embedding_multiplier = 1;  // factor on token embeddings
  // Width of inputs that each block has of its own, made of the tokens (models/layer_inputs.h); 0: none.
  int64_t layer_input_width = 0;
  float logit_multiplier = 1;
  float logit_cap = 0;          // logits z become cap tanh(z / cap) (Gemma 2); 0: no cap
  bool embedding_norm = false;  // a norm over the sum of embeddings (BERT)
  int64_t segments = 0;         // segment embeddings (BERT's token types); 0: none
  int64_t head_width = 0;       // d_f: projection, activation and norm before the unembedding; 0: none
  std::optional<Activation> head_activation = {};  // its activation; none: the blocks'
  bool head_bias = true;                           // its projection has a bias
  bool unembedding_bias = false;
  bool unembedding_scaled = false;  // its input is divided by sqrt(d_e) (T5's tied head)
  bool tied = true;                 // W_u = W_e^T
  Order order = Order::stack;
  Output output = Output::tokens;
  // Names of the classes, in order. An encoder whose output is tokens may also classify sequences, by
  // whether the second text follows the first (BERT's pre-training).
  std::vector<std::string> labels = {};
  Problem problem =
      Problem::single_label;  // if the output is sequence classes; regression: `labels` name the numbers
  Pooling pooling = Pooling::first;  // for sequence classes and embeddings
  bool pooler = false;               // f(W x + b) of the pooled vector (BERT) or of each token (ELECTRA)
  Activation pooler_activation = Activation::tanh;  // its f
  bool pooler_bias = true;                          // b
  bool pooler_norm = false;                         // a norm follows (ModernBERT)
  bool classifier_bias = true;                      // bias of the classifier
  RecurrenceSpec recurrence = {};
  MtpSpec mtp = {};
  LoraSpec lora = {};
  bool source_reversed = false;  // the encoder reads its source from the end (Sutskever et al. 2014)
  std::string family = {};  // family whose config.json it is saved as; empty: the first that can express it
  float init_std = 0.02F;
  float embedding_dropout = 0;
  float residual_dropout = 0;
  float head_dropout = 0;  // dropout of the classifier's input

  // True if no token of the decoder, or of the only stack, sees those after it.
  bool causal() const { return architecture != Architecture::encoder; }
  // True if each block's mixer attends.
  bool all_attend() const;
  // True if heads attend somewhere, to the tokens or to a source.
  bool any_attends() const;
  // True if the attention fields of these blocks have a meaning.
  bool attends() const { return architecture == Architecture::encoder_decoder || mixer.attends(); }
  // True if a stack is made of transformer blocks. If not, the fields of blocks have no meaning.
  bool has_blocks() const { return recurrence.encoder == Cell::none || recurrence.decoder == Cell::none; }
  // Maximum number of tokens of a sequence: the context if positions are looked up in a table of that size.
  // If layers know distances, a sequence may be longer than those of training.
  int64_t longest() const;
  // True if a layer attends by hashes, so that what a token is depends on all tokens of its text.
  bool hashes() const;
  // Vocabulary size of the input: the source's if there are sources.
  int64_t input_vocab_size() const { return source_vocab_size > 0 ? source_vocab_size : vocab_size; }
  // The shape of the encoder's blocks. If its width or heads differ, its heads have width / heads columns,
  // and each has its own keys.
  ModelSpec encoder_spec() const;
  // The encoder or the decoder of an encoder-decoder of blocks, as a model of its own. The encoder makes
  // embeddings, pooled by their mean; the decoder is without cross-attention. models/part.h has the weights.
  ModelSpec part(Architecture stack) const;
  // f of the head before the unembedding.
  Activation activation_of_head() const { return head_activation.value_or(activation); }
  // How it reads a source and a target.
  PairLayout pair_layout() const {
    return {context, architecture == Architecture::encoder_decoder, order == Order::prefix, encoder.context};
  }
  // Width of the last stack's output: that of both streams if it has two.
  int64_t output_width() const {
    if (latents.any() && output == Output::sequence_classes) return latents.width;
    return branches == Branches::reversible ? 2 * width : width;
  }
  // Width of a sequence's vector, or of the classifier's input.
  int64_t pooled_width() const { return pooler ? width : output_width(); }
  // True if a norm follows the last block of each stack.
  bool ends_with_norm() const {
    return final_norm && norm_placement != NormPlacement::post && norm_placement != NormPlacement::none;
  }
  // The name of a layer's kind of block, counted from 0, and that block.
  const std::string& kind_of(int64_t layer) const;
  const BlockSpec& block(int64_t layer) const;
  // The block of a kind; the model's own if there is no such kind.
  const BlockSpec& block_of(const std::string& kind) const;
  // The kinds that layers of a stack have, each once.
  std::vector<std::string> kinds_in_use(int64_t stack_layers) const;
  // The blocks that layers of either stack have, each once.
  std::vector<const BlockSpec*> blocks_in_use() const;
  // The layer whose weights a layer of a stack uses: the first of its group, or itself.
  int64_t owner_of(int64_t layer, int64_t stack_layers) const;
  // The layer whose keys and values a layer of this stack uses: itself, or where its block has reused_keys,
  // the last one before it with keys of its own and else the same attention; -1: there is none.
  int64_t keys_of(int64_t layer) const;
  // The experts of a layer that has any; none if no layer has.
  ExpertsSpec experts_in_use() const;
  // The block of module k of multi-token prediction, from 1, as the only block of a model: the last
  // layer's, with experts if a layer k places on had them.
  ModelSpec mtp_spec(int64_t k) const;
  // The model whose layers all have this kind of block.
  ModelSpec with_kind(const std::string& kind) const;
  // Rows of the classifier: the classes; 2 for a span, 1 for multiple choice; 0: no classifier.
  int64_t classes() const;
  bool operator==(const ModelSpec&) const = default;
};

// GPT-2's shape for these sizes: heads of width / heads, hidden 4 width.
ModelSpec gpt2_spec(int64_t vocab_size, int64_t context, int64_t width, int64_t layers, int64_t heads);

// Throws Error naming the field if the spec makes no sense.
void check_spec(const ModelSpec& spec);

// BERT's shape for these sizes: the same, post-LN, with segments, a norm of the embeddings and a head for
// masked tokens.
ModelSpec bert_spec(int64_t vocab_size, int64_t context, int64_t width, int64_t layers, int64_t heads);

// A pattern of attention as text: "all", or its parts with their numbers: "window 256 dilated 2", "block 64
// neighbours 1 ends random 3". Throw Error naming the word.
Pattern pattern_from_text(const std::string& text);
std::string text_of(const Pattern& pattern);
std::vector<Pattern> patterns_from_texts(const std::vector<std::string>& texts);
std::vector<std::string> texts_of(const std::vector<Pattern>& patterns);

// The kind of the layers whose block is the model's own.
inline const std::string kDefaultKind = "default";

// True for names of kinds and of other sections of a configuration: letters, digits, _ and -.
bool is_section_name(const std::string& name);

// True for positions that act in the blocks, and not in the embeddings.
bool is_of_blocks(Positions positions);

// True if scores fall with the distance, by a slope per head.
bool is_alibi(Positions positions);

// Names of a spec's enumerators, as configurations and files have them (spec_names.cc).
template <typename E>
requires std::is_enum_v<E> std::string name_of(E value);
template <typename E>
std::vector<std::string> names_of();
template <typename E>
E from_name(const std::string& name);  // Throws Error with the names that there are.

}  // namespace qkv

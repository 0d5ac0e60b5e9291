// An architecture is data: what a model is made of, by the literature's names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "qkv/batch/batch.h"
#include "qkv/models/feature_spec.h"
#include "qkv/models/mixer_spec.h"
#include "qkv/nn/attention_spec.h"
#include "qkv/nn/experts.h"
#include "qkv/nn/norm.h"
#include "qkv/nn/recurrence.h"
#include "qkv/nn/residual.h"

namespace qkv {

// Which of the stacks of Phuong & Hutter a model has.
enum class Architecture : uint8_t {
  decoder,          // Algorithm 10: each token sees those before it
  encoder,          // Algorithm 9: each token sees all
  encoder_decoder,  // Algorithm 8: the decoder also sees what the encoder makes of a source
};

// How a token's place enters its embedding.
enum class Positions : uint8_t {
  learned,            // a table W_p
  sinusoidal,         // wavelengths from 2 pi to 10000 2 pi, positions from 0 (Vaswani et al. 2017)
  sinusoidal_paper,   // as section 5 of Phuong & Hutter prints it: l_max for 10000, positions from 1
  sinusoidal_halves,  // the sines, then the cosines (Marian)
  sinusoidal_closed,  // the same, positions from 2 and the last wavelength 10000 2 pi itself (tensor2tensor,
                      // XGLM)
  relative,           // not at all: self-attention adds a bias by distance (T5)
  toeplitz,           // not at all: the same with a number for each distance
  rotary,             // not at all: queries and keys are turned (attention.rotary; Su et al. 2021)
  alibi,              // not at all: scores fall with the distance (Press et al. 2022)
  alibi_evens_first,  // the same with MPT's order of slopes where heads are no power of two
  alibi_scaled,       // the same, added before scores are scaled (Falcon)
  none,  // not at all: a recurrence knows the order of what it reads, a decoder finds it by what each token
         // sees (Kazemnejad et al. 2023), relative attention by distances (nn/relative.h)
};

// Which tokens a token sees.
enum class Order : uint8_t {
  stack,     // in an encoder all, in a decoder those before it
  prefix,    // in a decoder also each other, of the first ones: a prompt, a source (prefix LM)
  permuted,  // in an encoder all but the masked ones (permutation LM; Yang et al. 2019, XLNet)
};

// How the rows of a sequence become one.
enum class Pooling : uint8_t {
  first,  // its first token's (BERT's [CLS])
  last,   // its last token's, which alone has seen all others in a decoder
  mean,
};

// What an encoder-decoder has of recurrences: the models before the transformer, and those between.
struct RecurrenceSpec {
  Cell encoder = Cell::none, decoder = Cell::none;  // none: the stack is one of transformer blocks
  bool bidirectional = false;  // the encoder reads both ways, each with half of the width (Schuster 1997)
  SourceAttention attention = SourceAttention::none;  // of the decoder
  int64_t window = 10;                                // of local attention

  bool any() const { return encoder != Cell::none || decoder != Cell::none; }
  bool operator==(const RecurrenceSpec&) const = default;
};

// What the encoder of an encoder-decoder has another of than its decoder; 0: the same.
struct EncoderShape {
  int64_t width = 0, heads = 0, hidden = 0;
  int64_t context = 0;                         // of what it reads: features
  int64_t expert_first = 0, expert_every = 0;  // of its layers that have experts, where every is not 0

  bool any() const { return width > 0 || heads > 0 || hidden > 0 || context > 0 || expert_every > 0; }
  bool operator==(const EncoderShape&) const = default;
};

// Low-rank changes beside the weights of another model, which stay as they are (LoRA).
struct LoraSpec {
  int64_t rank = 0;  // 0: there are none
  float alpha = 0;   // changes count alpha / rank
  float dropout = 0;
  std::vector<std::string> targets = {};  // modules by their names in files, or their ends
  // Of modules of these names, or with these ends, another rank and another alpha.
  std::vector<std::pair<std::string, int64_t>> ranks = {};
  std::vector<std::pair<std::string, float>> alphas = {};
  bool rank_stabilized = false;            // changes count alpha / sqrt(rank) (Kalajdzievski 2023)
  std::string base = {};                   // the other model's directory
  std::vector<AdapterSpec> adapters = {};  // what that means for this model

  bool any() const { return rank > 0; }
  bool operator==(const LoraSpec&) const = default;
};

// A block: a mixer, a feed-forward network or experts, norms and the residual form.
struct BlockSpec {
  MixerSpec mixer = {};
  AttentionSpec attention = {};  // of the mixer where it attends, and to a source
  int64_t hidden = 0;            // d_mlp
  Activation activation = Activation::gelu_tanh;
  bool gated = false;  // the feed-forward network has a second factor (Shazeer 2020)
  bool feed_forward_bias = true;
  int64_t hidden_layers = 1;  // of the feed-forward network
  ExpertsSpec experts = {};   // which layers have a mixture instead
  Normalization normalization = Normalization::layer;
  NormPlacement norm_placement = NormPlacement::pre;
  float norm_epsilon = 1e-5F;
  Branches branches = Branches::serial;
  float residual_multiplier = 1;  // of what a branch adds
  Positions positions = Positions::learned;
  int64_t relative_buckets = 32, relative_distance = 128;  // of relative positions

  NormSpec norm() const { return {normalization, norm_epsilon}; }
  FeedForwardSpec feed_forward() const {
    return {hidden, activation, gated, feed_forward_bias, hidden_layers};
  }
  bool operator==(const BlockSpec&) const = default;
};

// A kind of block that some layers have, where layers differ.
struct BlockKind {
  std::string name;
  BlockSpec block;
  bool operator==(const BlockKind&) const = default;
};

// A transformer: embeddings, one or two stacks of blocks, a head. Fields named as in the literature. As a
// BlockSpec it is the block of all layers that `layer_kinds` gives no other.
struct ModelSpec : BlockSpec {
  Architecture architecture = Architecture::decoder;
  int64_t vocab_size = 0;         // N_V
  int64_t source_vocab_size = 0;  // of an encoder-decoder's sources, where theirs is another; else 0
  int64_t context = 0;            // l_max
  int64_t width = 0;              // d_e
  int64_t layers = 0;             // L; of an encoder-decoder L_dec
  int64_t encoder_layers = 0;     // L_enc of an encoder-decoder, else 0
  EncoderShape encoder = {};
  // What the encoder reads beside tokens, or an encoder-decoder's in the place of all.
  FeatureSpec features = {};
  // Kinds of blocks, sorted by name, and the kind of each layer, in turn: a name of these, or "default".
  // None: all layers have the same block.
  std::vector<BlockKind> kinds = {};
  std::vector<std::string> layer_kinds = {};
  bool final_norm = true;  // each stack ends with a norm; post and none never do
  // The number of the first token's position, where it is not the usual 2: of sinusoidal_closed ones its
  // angle (M2M-100), of learned ones in files alone, its row of their table (RoBERTa).
  int64_t first_position = 0;
  // Tokens stand in rows of so many: learned, sinusoidal and rotary positions are rows and columns; 0: in one
  // row.
  int64_t grid = 0;
  // Of learned ones in a grid: the columns that tell the row, the others tell the column (Ho et al. 2019,
  // axial positions); 0: both have all columns, and are added.
  int64_t axial_width = 0;
  // Tokens before a training window, or a window that is measured, whose layers' inputs attention sees, too
  // (Dai et al. 2019, Transformer-XL); 0: none.
  int64_t memory = 0;
  bool stacks_apart = false;      // each of two stacks has positions and an embedding norm of its own
  bool embedding_scaled = false;  // tokens' embeddings times sqrt(d_e) (Vaswani et al.)
  int64_t layer_groups =
      0;  // layers side by side share their weights, in so many groups (ALBERT); 0: none do
  int64_t embedding_width = 0;  // of tokens' embeddings, where another than the blocks' (OPT); 0: the same
  // What is projected to the blocks' width: the whole embedding, with a bias (ALBERT); else tokens' alone
  // (OPT).
  bool embedding_projected_last = false;
  bool embedding_unit = false;     // tokens' embeddings, and unembeddings, are of length 1 (Nguyen & Chiang
                                   // 2018, FixNorm)
  float embedding_multiplier = 1;  // and times this
  float logit_multiplier = 1;
  float logit_cap = 0;          // logits z become cap tanh(z / cap) (Gemma 2); 0: they stay
  bool embedding_norm = false;  // a norm over the sum of embeddings (BERT)
  int64_t segments = 0;         // segment embeddings (BERT's token types); 0: none
  int64_t head_width = 0;       // d_f: projection, activation and norm before the unembedding; 0: none
  std::optional<Activation> head_activation = {};  // of that; none: the blocks'
  bool unembedding_bias = false;
  bool unembedding_scaled = false;  // what it reads is divided by sqrt(d_e) (T5's tied head)
  bool tied = true;                 // W_u = W_e^T
  Order order = Order::stack;
  Output output = Output::tokens;
  // Of the classes, in their order. An encoder whose output is tokens may also tell the class of a sequence:
  // whether its second text follows the first (BERT's pre-training).
  std::vector<std::string> labels = {};
  Pooling pooling = Pooling::first;  // of sequence classes and embeddings
  bool pooler = false;               // f(W x + b) of what is pooled (BERT), or of each token (ELECTRA)
  Activation pooler_activation = Activation::tanh;  // its f
  bool classifier_bias = true;                      // of the classes
  RecurrenceSpec recurrence = {};
  LoraSpec lora = {};
  bool source_reversed = false;  // the encoder reads its source from the end (Sutskever et al. 2014)
  std::string family =
      {};  // whose config.json it is written as, where several can; empty: the first that can
  float init_std = 0.02F;
  float embedding_dropout = 0;
  float residual_dropout = 0;
  float head_dropout = 0;  // of what the classes are read from

  // True where no token of the decoder, or of the only stack, sees those after it.
  bool causal() const { return architecture != Architecture::encoder; }
  // True where each block's mixer attends.
  bool all_attend() const;
  // True where heads attend somewhere, to the tokens or to a source.
  bool any_attends() const;
  // True where attention means anything in these blocks.
  bool attends() const { return architecture == Architecture::encoder_decoder || mixer.attends(); }
  // Whether a stack is made of transformer blocks; if not, what is said of blocks means nothing.
  bool has_blocks() const { return recurrence.encoder == Cell::none || recurrence.decoder == Cell::none; }
  // Tokens of a sequence at most: the context where places are looked up in a table of so many. Where
  // distances tell them, a sequence may outgrow what the model was trained with.
  int64_t longest() const;
  int64_t longest_by_positions() const;  // were no layer's keys hashed beyond some length
  // Of what a model is given to read: a source's where there are sources.
  int64_t input_vocab_size() const { return source_vocab_size > 0 ? source_vocab_size : vocab_size; }
  // The shape that the encoder's blocks have: heads of width / heads, each with keys of its own, where it is
  // another.
  ModelSpec encoder_spec() const;
  // f of the head before the unembedding.
  Activation activation_of_head() const { return head_activation.value_or(activation); }
  // How it reads a source and a target.
  PairLayout pair_layout() const {
    return {context, architecture == Architecture::encoder_decoder, order == Order::prefix};
  }
  // Of what leaves the last stack: both streams where it has two.
  int64_t output_width() const { return branches == Branches::reversible ? 2 * width : width; }
  // Of what stands for a sequence, or what classes are read from.
  int64_t pooled_width() const { return pooler ? width : output_width(); }
  // Whether a norm follows the last block of each stack.
  bool ends_with_norm() const {
    return final_norm && norm_placement != NormPlacement::post && norm_placement != NormPlacement::none;
  }
  // The name of a layer's kind of block, counted from 0, and that block.
  const std::string& kind_of(int64_t layer) const;
  const BlockSpec& block(int64_t layer) const;
  // The block of a kind; the model's own where there is no such kind.
  const BlockSpec& block_of(const std::string& kind) const;
  // The kinds that layers of a stack have, each once.
  std::vector<std::string> kinds_in_use(int64_t stack_layers) const;
  // The blocks that layers of either stack have, each once.
  std::vector<const BlockSpec*> blocks_in_use() const;
  // The layer that a layer of a stack has its weights from: the first of its group, or itself.
  int64_t owner_of(int64_t layer, int64_t stack_layers) const;
  // The experts of a layer that has any; none where no layer has.
  ExpertsSpec experts_in_use() const;
  // The model whose layers all have this kind of block.
  ModelSpec with_kind(const std::string& kind) const;
  // Rows of the classifier: the classes; 2 of a span; 0: there is none.
  int64_t classes() const;
  bool operator==(const ModelSpec&) const = default;
};

// GPT-2's shape for these sizes: heads of width / heads, hidden 4 width.
ModelSpec gpt2_spec(int64_t vocab_size, int64_t context, int64_t width, int64_t layers, int64_t heads);

// Throws Error naming the field when the spec makes no sense.
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

// True for positions that embeddings know nothing of.
bool is_of_blocks(Positions positions);

// Whether scores fall with the distance by a slope of each head.
bool is_alibi(Positions positions);

// Names of a spec's enumerators, as configurations and files have them (spec_names.cc).
template <typename E>
requires std::is_enum_v<E> std::string name_of(E value);
template <typename E>
std::vector<std::string> names_of();
template <typename E>
E from_name(const std::string& name);  // Throws Error with the names that there are.

}  // namespace qkv

#include "qkv/models/spec.h"

#include <algorithm>
#include <initializer_list>

#include "qkv/base/error.h"

namespace qkv {

ModelSpec gpt2_spec(int64_t vocab_size, int64_t context, int64_t width, int64_t layers, int64_t heads) {
  check(heads > 0, "model: heads must be positive, got {}", heads);
  ModelSpec s;
  s.vocab_size = vocab_size;
  s.context = context;
  s.width = width;
  s.layers = layers;
  s.attention.heads = s.attention.kv_heads = heads;
  s.attention.d_qk = s.attention.d_vo = width / heads;
  s.hidden = 4 * width;
  check(width % heads == 0, "model: width {} is not divisible by {} heads", width, heads);
  return s;
}

ModelSpec bert_spec(int64_t vocab_size, int64_t context, int64_t width, int64_t layers, int64_t heads) {
  ModelSpec s = gpt2_spec(vocab_size, context, width, layers, heads);
  s.architecture = Architecture::encoder;
  s.norm_placement = NormPlacement::post;
  s.activation = Activation::gelu;
  s.norm_epsilon = 1e-12F;
  s.embedding_norm = true;
  s.segments = 2;
  s.head_width = width;
  s.unembedding_bias = true;
  return s;
}

const std::string& ModelSpec::kind_of(int64_t layer) const {
  return layer_kinds.empty() ? kDefaultKind : layer_kinds[static_cast<size_t>(layer) % layer_kinds.size()];
}

const BlockSpec& ModelSpec::block_of(const std::string& kind) const {
  for (const BlockKind& k : kinds)
    if (k.name == kind) return k.block;
  return *this;
}

const BlockSpec& ModelSpec::block(int64_t layer) const {
  return block_of(kind_of(layer));
}

std::vector<std::string> ModelSpec::kinds_in_use(int64_t stack_layers) const {
  std::vector<std::string> names;
  for (int64_t l = 0; l < std::max<int64_t>(1, stack_layers); ++l)
    if (std::ranges::find(names, kind_of(l)) == names.end()) names.push_back(kind_of(l));
  return names;
}

std::vector<const BlockSpec*> ModelSpec::blocks_in_use() const {
  std::vector<const BlockSpec*> blocks;
  const bool apart = !encoder_layer_kinds.empty();
  std::vector<std::string> kinds = kinds_in_use(apart ? layers : std::max(layers, encoder_layers));
  const auto named = std::min<int64_t>(encoder_layers, std::ssize(encoder_layer_kinds));
  kinds.insert(kinds.end(), encoder_layer_kinds.begin(), encoder_layer_kinds.begin() + named);
  for (const std::string& kind : kinds)
    if (const BlockSpec* block = &block_of(kind); std::ranges::find(blocks, block) == blocks.end())
      blocks.push_back(block);
  return blocks;
}

int64_t ModelSpec::owner_of(int64_t layer, int64_t stack_layers) const {
  const auto group_of = [&](int64_t l) { return l * layer_groups / stack_layers; };
  int64_t first = layer;
  while (layer_groups > 0 && first > 0 && group_of(first - 1) == group_of(layer)) --first;
  return first;
}

int64_t ModelSpec::keys_of(int64_t layer) const {
  if (block(layer).mixer.get_if<Rwkv7Mixer>() != nullptr) return 0;
  AttentionSpec own = block(layer).attention;
  if (!own.reused_keys) return layer;
  own.reused_keys = false;
  const auto turn = [&](int64_t l) {  // its place among the patterns
    return own.patterns.empty() ? 0 : l % std::ssize(own.patterns);
  };
  const MixerSpec& mixer = block(layer).mixer;
  int64_t l = layer - 1;
  while (l >= 0 && (block(l).attention != own || block(l).mixer != mixer || turn(l) != turn(layer))) --l;
  return l;
}

ExpertsSpec ModelSpec::experts_in_use() const {
  for (const BlockSpec* block : blocks_in_use())
    if (block->experts.count > 0) return block->experts;
  return {};
}

bool ModelSpec::all_attend() const {
  return std::ranges::all_of(blocks_in_use(), [](const BlockSpec* b) { return b->mixer.attends(); });
}

bool ModelSpec::any_attends() const {
  return architecture == Architecture::encoder_decoder ||
         std::ranges::any_of(blocks_in_use(), [](const BlockSpec* b) { return b->mixer.attends(); });
}

ModelSpec ModelSpec::with_kind(const std::string& kind) const {
  ModelSpec s = *this;
  s.kinds.clear();
  s.layer_kinds.clear();
  s.encoder_layer_kinds.clear();
  static_cast<BlockSpec&>(s) = block_of(kind);
  return s;
}

ModelSpec ModelSpec::mtp_spec(int64_t k) const {
  ModelSpec s = with_kind(kind_of(layers - 1));
  s.layers = 1;
  s.layer_groups = 0;
  s.final_norm = false;  // modules have their own
  s.mtp = {};
  if (!s.experts.in_layer(layers - 1 + k)) s.experts = {};
  s.experts.first = 0;
  s.experts.every = 1;
  return s;
}

bool ModelSpec::hashes() const {
  return std::ranges::any_of(blocks_in_use(), [](const BlockSpec* block) {
    const AttentionSpec& a = block->attention;
    return block->mixer.attends() && a.hashing.chunk > 0 &&
           std::ranges::any_of(a.shared_query_key, [](int64_t s) { return s != 0; });
  });
}

int64_t ModelSpec::longest() const {
  constexpr int64_t kUnbounded = int64_t{1} << 28;
  if (!is_of_blocks(positions)) return context;
  for (const BlockSpec* b : blocks_in_use())
    if (const auto* aft = b->mixer.get_if<AttentionFreeMixer>(); aft != nullptr && aft->by_position())
      return context;
  // Layers that know no positions are told the order by those that do.
  const auto tells_distances = [](const BlockSpec* b) {
    return b->positions != Positions::none || b->attention.relative.on() || b->mixer.knows_order();
  };
  return std::ranges::any_of(blocks_in_use(), tells_distances) ? kUnbounded : context;
}

bool is_section_name(const std::string& name) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !name.empty() && name.find_first_not_of(kLetters) == std::string::npos;
}

bool is_of_blocks(Positions positions) {
  switch (positions) {
    case Positions::relative:
    case Positions::toeplitz:
    case Positions::rotary:
    case Positions::none:
      return true;
    default:
      return is_alibi(positions);
  }
}

bool is_alibi(Positions positions) {
  return positions == Positions::alibi || positions == Positions::alibi_evens_first ||
         positions == Positions::alibi_scaled || positions == Positions::alibi_signed;
}

ModelSpec ModelSpec::encoder_spec() const {
  ModelSpec s = *this;
  s.encoder = {};
  s.encoder_layer_kinds.clear();
  const bool own_kinds = !encoder_layer_kinds.empty();
  if (own_kinds) {
    s.layer_kinds = encoder_layer_kinds;
    const auto named = [&](const std::string& kind) {
      return std::ranges::find(encoder_layer_kinds, kind) != encoder_layer_kinds.end();
    };
    // If all layers are of one kind, the norms beside them are, too.
    const std::string& first = encoder_layer_kinds[0];
    if (std::ranges::count(encoder_layer_kinds, first) == std::ssize(encoder_layer_kinds))
      static_cast<BlockSpec&>(s) = block_of(first);
    std::erase_if(s.kinds, [&](const BlockKind& k) { return !named(k.name); });
  }
  if (encoder.expert_every > 0) {
    s.experts.first = encoder.expert_first;
    s.experts.every = encoder.expert_every;
  }
  if (encoder.width > 0) s.width = encoder.width;
  if (encoder.hidden > 0) s.hidden = encoder.hidden;
  if (encoder.context > 0) s.context = encoder.context;
  if (encoder.heads > 0) s.attention.heads = s.attention.kv_heads = encoder.heads;
  if (own_kinds) return s;  // their heads are their own
  if (encoder.width > 0 || encoder.heads > 0) s.attention.head_sizes.clear();
  if (encoder.width > 0 || encoder.heads > 0)
    s.attention.d_qk = s.attention.d_vo = s.width / s.attention.heads;
  return s;
}

ModelSpec ModelSpec::part(Architecture stack) const {
  check(architecture == Architecture::encoder_decoder, "model: {} has no part to take out",
        name_of(architecture));
  check(stack != Architecture::encoder_decoder, "model: a part is an encoder or a decoder");
  check(!recurrence.any(), "model: recurrent networks are not taken apart");
  check(!source_reversed || stack == Architecture::decoder,
        "model: the encoder reads its source from the end, which it would not do by itself");
  check(features.kind != FeatureSpec::Kind::frames || stack == Architecture::decoder,
        "model: the encoder reads spectrograms, and only beside its decoder");
  const bool encodes = stack == Architecture::encoder;
  ModelSpec s = encodes ? encoder_spec() : *this;
  s.architecture = stack;
  if (encodes) {
    s.layers = encoder_layers;
    s.vocab_size = input_vocab_size();
    s.output = Output::embedding;
    s.pooling = Pooling::mean;
    s.tied = true;
    s.head_width = 0;
    s.head_activation.reset();
    s.head_bias = true;
    s.unembedding_bias = s.unembedding_scaled = false;
    s.logit_cap = 0;
    s.logit_multiplier = 1;
    if (s.experts.first >= s.layers) s.experts = {};  // none of its layers has any
  } else {
    s.features = {};
    std::erase_if(s.kinds, [&](const BlockKind& k) {
      return std::ranges::find(layer_kinds, k.name) == layer_kinds.end();
    });
  }
  s.attention.cross_linear = false;
  for (BlockKind& k : s.kinds) k.block.attention.cross_linear = false;
  s.encoder = {};
  s.encoder_layers = s.source_vocab_size = 0;
  s.encoder_layer_kinds.clear();
  s.stacks_apart = s.source_reversed = false;
  s.family.clear();
  return s;
}

int64_t ModelSpec::classes() const {
  if (problem == Problem::multiple_choice) return 1;
  return output == Output::span ? 2 : std::ssize(labels);
}

}  // namespace qkv

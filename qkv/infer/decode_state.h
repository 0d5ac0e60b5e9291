// State of sequences that are decoded token by token: the KV cache, or a recurrence's state.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qkv/models/transformer.h"
#include "qkv/nn/states.h"

namespace qkv {

// Sources of an encoder-decoder: tokens, or rows of features where an id is kFeature.
struct Sources {
  std::vector<std::vector<int32_t>> ids = {};
  Tensor features = {};                            // features of all sources, as in ModelInput
  std::vector<std::vector<int32_t>> globals = {};  // flags of global tokens, one for each id; empty: none

  Sources() = default;
  Sources(std::vector<std::vector<int32_t>> tokens) : ids(std::move(tokens)) {}
};

// Further options of a pass over new tokens.
struct PassOptions {
  // The number of first tokens of each sequence that see each other in a prefix LM; empty: all.
  std::span<const int32_t> prefixes = {};
  Probe* probe = nullptr;    // sees the model's intermediate values
  Tensor* hidden = nullptr;  // gets the hidden states of all new tokens
  // Each sequence's adapter, null: none; empty: no sequence has one. Always the same of a sequence.
  std::span<const AdapterWeights* const> adapters = {};
  // The number of last new tokens of each sequence after which logits are wanted; empty: 1 of each that gets
  // any.
  std::span<const int32_t> wanted = {};
};

// True if the states of a new token of an output depend on nothing after it, so that several may be read at
// once. With hashed attention they depend on all tokens of their text.
bool continues_in_parts(const ModelSpec& spec);
// The same of a prompt's tokens.
bool looks_back(const ModelSpec& spec);

// The decoding state of a batch of sequences; owns the layers' states. If layers attend by hashes
// (ModelSpec::hashes), a text's tokens are its state, and it is read as a whole each time.
class DecodeState {
 public:
  DecodeState(const Transformer& model, int64_t sequences);
  // For an encoder-decoder: one sequence for each source; sources are encoded with the first tokens.
  DecodeState(const Transformer& model, const Sources& sources);

  // Feeds tokens[s] to sequence s; a sequence that gets none stays as it is. Returns the model's hidden
  // states [N, D], the rows of one sequence after another. Throws Error if a sequence would outgrow the
  // model's context.
  Tensor extend(const std::vector<std::vector<int32_t>>& tokens, const PassOptions& options = {});
  // The same, but returns the logits that are wanted, f32 [rows, V] in the order of extend(); undefined where
  // none are. A long prompt of a single sequence is read in parts, where that changes nothing, to take less
  // memory.
  Tensor advance(const std::vector<std::vector<int32_t>>& tokens, const PassOptions& options = {});
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t sequence) const { return lengths_[sequence]; }

  DecodeState fork() const;
  void reorder(std::span<const int32_t> sources);
  // Adds these sequences of another state behind its own, as copies. Throws Error if the other is of another
  // model, or has sources that are not encoded yet.
  void join(const DecodeState& other, std::span<const int32_t> sequences);
  void truncate(int64_t sequence, int64_t length);
  // True if truncate() can go back to this length.
  bool can_truncate(int64_t sequence, int64_t length) const;
  int64_t bytes() const;  // all layers' states together
  // The layers' states as plain tensors. load() takes those of a model of the same spec, of one sequence that
  // has read `length` tokens; it throws Error if they do not fit.
  std::vector<std::vector<Tensor>> save() const;
  void load(const std::vector<std::vector<Tensor>>& layers, int64_t length);

 private:
  void expect_room(int64_t sequence, int64_t tokens) const;
  // extend() by texts as a whole; `counts`: the new tokens of each.
  Tensor read_again(const std::vector<int32_t>& counts, Context& context) const;

  const Transformer* model_;
  std::vector<int32_t> lengths_;
  bool reads_again_;
  std::vector<std::vector<int32_t>> texts_;  // if it reads them again
  Indices source_;                           // not yet encoded
  Indices globals_;                          // until the sources are encoded
  Tensor features_;                          // not yet encoded
  Layout source_layout_;
  DecodingStates states_;
};

}  // namespace qkv

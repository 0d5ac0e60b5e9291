// What is remembered of sequences that are written token by token: keys and values, or a recurrence's state.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qkv/models/transformer.h"

namespace qkv {

// What an encoder-decoder writes from: tokens, or rows of features where an id is kFeature.
struct Sources {
  std::vector<std::vector<int32_t>> ids = {};
  Tensor features = {};  // of all, as ModelInput has them

  Sources() = default;
  Sources(std::vector<std::vector<int32_t>> tokens) : ids(std::move(tokens)) {}
};

// The memory of a batch of sequences while they are decoded; owns the layers' states.
class DecodeState {
 public:
  DecodeState(const Transformer& model, int64_t sequences);
  // Of an encoder-decoder: one sequence for each source, which is encoded with the first tokens.
  DecodeState(const Transformer& model, const Sources& sources);

  // Feeds tokens[s] to sequence s (at least one each) and returns what the model makes of them, the rows of
  // one sequence after another, [N, D]. Throws Error when a sequence would outgrow the model's context.
  // `prefixes`: of a prefix LM's first tokens, how many of each see each other; empty: all. `probe` sees what
  // the model computes.
  Tensor extend(const std::vector<std::vector<int32_t>>& tokens, std::span<const int32_t> prefixes = {},
                Probe* probe = nullptr);
  // Likewise; returns the logits after the last token of each, f32 [sequences, V].
  Tensor advance(const std::vector<std::vector<int32_t>>& tokens, std::span<const int32_t> prefixes = {},
                 Probe* probe = nullptr);
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t sequence) const { return lengths_[sequence]; }

  DecodeState fork() const;
  void reorder(std::span<const int32_t> sources);
  void truncate(int64_t sequence, int64_t length);

 private:
  const Transformer* model_;
  std::vector<int32_t> lengths_;
  Indices source_;   // not yet encoded
  Tensor features_;  // likewise
  Layout source_layout_;
  DecodingStates states_;
};

}  // namespace qkv

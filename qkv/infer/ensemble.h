// Several models that write one text: what comes next is said by the mean of their probabilities (Sutskever
// et al. 2014, section 3.6).
#pragma once

#include <span>
#include <vector>

#include "qkv/infer/decode_state.h"

namespace qkv {

// Models of the same tokens. They must outlive it.
class Ensemble {
 public:
  // One alone.
  Ensemble(const Transformer& model) : models_{&model} {}
  // Throws Error where they differ in what they read and write: architecture, order, vocabularies, context.
  explicit Ensemble(std::vector<const Transformer*> models);

  std::span<const Transformer* const> models() const { return models_; }
  // What is the same in all, and the first one's shape.
  const ModelSpec& spec() const { return models_.front()->spec(); }

 private:
  std::vector<const Transformer*> models_;
};

// What they remember of a batch of sequences: a DecodeState each, and used as one.
class EnsembleState {
 public:
  EnsembleState(const Ensemble& models, int64_t sequences);
  EnsembleState(const Ensemble& models, const Sources& sources);

  // One model's logits; of several the logarithm of the mean of their probabilities. f32 [sequences, V].
  // `probe` sees what the first model computes.
  Tensor advance(const std::vector<std::vector<int32_t>>& tokens, std::span<const int32_t> prefixes = {},
                 Probe* probe = nullptr);
  int64_t length(int64_t sequence) const { return states_.front().length(sequence); }
  void reorder(std::span<const int32_t> sources);
  void truncate(int64_t sequence, int64_t length);

 private:
  std::vector<DecodeState> states_;
};

}  // namespace qkv

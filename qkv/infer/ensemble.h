// Several models that generate one text by the mean of their probabilities (Sutskever et al. 2014, section
// 3.6).
#pragma once

#include <span>
#include <vector>

#include "qkv/infer/decode_state.h"

namespace qkv {

// Models with the same vocabulary, which must outlive this object.
class Ensemble {
 public:
  // A single model.
  Ensemble(const Transformer& model) : models_{&model} {}
  // Throws Error if they differ in architecture, order, vocabularies or context.
  explicit Ensemble(std::vector<const Transformer*> models);

  std::span<const Transformer* const> models() const { return models_; }
  // The spec of the first model, which has the properties that all share.
  const ModelSpec& spec() const { return models_.front()->spec(); }

 private:
  std::vector<const Transformer*> models_;
};

// Decoding states of a batch of sequences: one DecodeState for each model, used as one.
class EnsembleState {
 public:
  EnsembleState(const Ensemble& models, int64_t sequences);
  EnsembleState(const Ensemble& models, const Sources& sources);

  // The logits of a single model, or the logarithm of the mean of several models' probabilities, f32 [rows,
  // V]; see DecodeState. The probe and `hidden` are of the first model.
  Tensor advance(const std::vector<std::vector<int32_t>>& tokens, const PassOptions& options = {});
  int64_t sequences() const { return states_.front().sequences(); }
  int64_t length(int64_t sequence) const { return states_.front().length(sequence); }
  void reorder(std::span<const int32_t> sources);
  void join(const EnsembleState& other, std::span<const int32_t> sequences);
  void truncate(int64_t sequence, int64_t length);
  bool can_truncate(int64_t sequence, int64_t length) const;
  int64_t bytes() const;
  // Each model's states; see DecodeState.
  using Saved = std::vector<std::vector<std::vector<Tensor>>>;
  Saved save() const;
  void load(const Saved& saved, int64_t length);

 private:
  std::vector<DecodeState> states_;
};

}  // namespace qkv

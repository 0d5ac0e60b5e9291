// The decoder-only transformer: DTransformer of Phuong & Hutter (Algorithm 10), over a flat batch.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qkv/models/spec.h"
#include "qkv/ops/cross_entropy.h"

namespace qkv {

// A model of the shape that a spec describes. Its parameters are bound by load_model(), drawn by
// Parameters::draw(), or drawn and made trainable by Parameters::prepare_training().
class Decoder {
 public:
  explicit Decoder(const ModelSpec& spec);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const ModelSpec& spec() const { return spec_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

  // Recomputes each block in the backward pass instead of keeping its activations.
  void set_recompute(bool on) { recompute_ = on; }
  // Probability that a training step goes without a block (LayerDrop, Fan et al. 2020).
  void set_layer_drop(float p) { layer_drop_ = p; }

  // Lines 1-10: ids i32 [N] -> [N, D], normalised. `states`: one a block, appended to, or empty.
  Tensor hidden(const Tensor& ids, const Context& context,
                std::span<const std::unique_ptr<LayerState>> states = {}) const;
  // Line 11 before the softmax: hidden [N, D] -> f32 [N, V].
  Tensor logits(const Tensor& hidden) const;
  // The loss of Algorithm 13 for these targets; see unembed_cross_entropy().
  CrossEntropyResult loss(const Tensor& ids, const Tensor& targets, const Context& context, float scale,
                          const LossTerms& terms = {}) const;

  // Fresh memory for decoding so many sequences.
  std::vector<std::unique_ptr<LayerState>> make_states(int64_t sequences) const;

 private:
  struct Block {
    Residual attention, feed_forward;
  };
  // Whether this step goes without the block; the same for all its micro-batches.
  bool dropped(size_t layer, const Context& context) const;
  const Tensor& unembedding() const { return unembedding_->value; }

  ModelSpec spec_;
  Parameters parameters_;
  Parameter* token_;     // W_e^T [V, D]
  Parameter* position_;  // W_p^T [context, D]
  std::vector<Block> blocks_;
  std::unique_ptr<LayerNorm> norm_;
  Parameter* unembedding_;  // W_u [V, D]; the token embedding itself when tied
  bool recompute_ = false;
  float layer_drop_ = 0;
};

}  // namespace qkv

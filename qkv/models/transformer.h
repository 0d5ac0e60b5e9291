// The transformers of Phuong & Hutter over a flat batch: EDTransformer, ETransformer and DTransformer
// (Algorithms 8, 9 and 10).
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "qkv/batch/batch.h"
#include "qkv/models/embedding.h"
#include "qkv/models/head.h"
#include "qkv/models/layer_inputs.h"
#include "qkv/models/mtp.h"
#include "qkv/models/stack.h"
#include "qkv/ops/cross_entropy.h"

namespace qkv {

// A model as a spec describes it; a stack may also be recurrent. Its parameters are bound by load_model(),
// drawn by Parameters::draw(), or drawn and made trainable by Parameters::prepare_training().
class Transformer {
 public:
  explicit Transformer(const ModelSpec& spec);
  ~Transformer();
  Transformer(const Transformer&) = delete;
  Transformer& operator=(const Transformer&) = delete;

  const ModelSpec& spec() const { return spec_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }

  void set_pooling(Pooling pooling) { spec_.pooling = pooling; }
  // Vectors of texts are pooled rows themselves, without the layer that the spec has behind them.
  void leave_out_pooler() { spec_.pooler = false; }
  // Texts are cut off after so many tokens, at most the context.
  void limit_context(int64_t tokens) { spec_.context = std::min(spec_.context, tokens); }
  // Recomputes each block in the backward pass instead of keeping its activations.
  void set_recompute(bool on);
  // Sets the probability that a training step skips a block (LayerDrop, Fan et al. 2020).
  void set_layer_drop(float p);

  // Updates state that no gradient moves (see Sublayer). Call once per optimizer step.
  void update_buffers() const;

  // Z of Algorithm 8: source [M] -> [M, D]. The context's visibility is the source's. REQUIRES: an
  // encoder-decoder.
  Tensor encode(const ModelInput& input, const Context& context) const;
  // Hidden rows of the last stack: ids [N] -> [N, D]. An encoder-decoder encodes the source first, or takes
  // the rows of source_keys and source_values; without a source in the input, the context's states must have
  // it. The input's layouts, segments and source
  // replace the context's.
  Tensor hidden(const ModelInput& input, const Context& context) const;
  // The norm behind the last stack's last block, of rows [N, D] of its residual stream (Stack::last_norm()).
  Tensor last_norm(const Tensor& stream) const {
    return (decoder_ ? *decoder_ : *encoder_).last_norm(stream, {});
  }
  // See Unembedding.
  Weight unembedding() const { return unembedding_of_tokens().weight(); }
  Tensor projected(const Tensor& hidden) const { return unembedding_of_tokens().projected(hidden); }
  Tensor logits(const Tensor& hidden) const { return unembedding_of_tokens().logits(hidden); }
  // See Classifier and Pooler.
  Tensor classes(const Tensor& hidden, const ModelInput& input, const Context& context) const {
    return classifier().classes(hidden, input, context);
  }
  std::pair<Tensor, Tensor> distilled_classes(const Tensor& hidden, const ModelInput& input) const {
    return classifier().distilled_classes(hidden, input);
  }
  Tensor pooled(const Tensor& hidden, const ModelInput& input) const {
    return pooler_->pooled(hidden, input);
  }
  // The modules of multi-token prediction; null: there are none.
  const MtpModules* mtp() const { return mtp_.get(); }
  // The loss for targets of the model's output: [N] for tokens (Algorithms 11, 12 and 13) or token classes,
  // kIgnored where nothing is predicted; [S] for sequence classes; [S, 2] for spans. Embeddings have no
  // targets: each sequence of the first half should find its partner in the second half. If the input has
  // sequence_targets, the mean of their losses is added to the tokens' loss, but not to the result's total
  // and count. Nor are the losses of multi-token prediction: the result has them besides, and they are added
  // to its loss while gradients are recorded, but not for adapters. `scale` as in unembed_cross_entropy().
  // Throws Error if the output has no targets.
  CrossEntropyResult loss(const ModelInput& input, const Indices& targets, const Context& context,
                          float scale, const LossTerms& terms = {}) const;

  // Empty states for decoding this many sequences. REQUIRES: not an encoder.
  DecodingStates make_states(int64_t sequences) const;
  // Empty memory of segments. REQUIRES: spec().memory > 0.
  SegmentStates make_segment_states(int64_t sequences) const;

 private:
  // Sets the context's source to the rows that the input gives.
  void take_source(const ModelInput& input, Context& context) const;
  const Unembedding& unembedding_of_tokens() const;  // throws Error if the output has none
  const Classifier& classifier() const;              // throws Error if there is none

  ModelSpec spec_;
  Parameters parameters_;
  Parameter* token_;  // W_e^T [V, D]
  std::unique_ptr<InputEmbedding> embedding_,
      source_embedding_;                       // the second if the stacks have separate embeddings
  std::unique_ptr<LayerInputs> layer_inputs_;  // null: blocks read the residual stream alone
  std::unique_ptr<Stack> encoder_, decoder_;
  std::unique_ptr<Unembedding> unembedding_;  // null unless the output is tokens
  std::unique_ptr<MtpModules> mtp_;
  std::unique_ptr<Pooler> pooler_;
  std::unique_ptr<Classifier> classifier_;  // null without classes
  std::unique_ptr<Head> head_;
};

}  // namespace qkv

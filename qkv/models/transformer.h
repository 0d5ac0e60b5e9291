// The transformers of Phuong & Hutter over a flat batch: EDTransformer, ETransformer and DTransformer
// (Algorithms 8, 9 and 10).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qkv/batch/batch.h"
#include "qkv/models/embedding.h"
#include "qkv/models/head.h"
#include "qkv/models/stack.h"
#include "qkv/ops/cross_entropy.h"

namespace qkv {

// A model of the shape that a spec describes; a stack may be a recurrence instead. Its parameters are bound
// by load_model(), drawn by Parameters::draw(), or drawn and made trainable by
// Parameters::prepare_training().
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
  // Recomputes each block in the backward pass instead of keeping its activations.
  void set_recompute(bool on);
  // Probability that a training step goes without a block (LayerDrop, Fan et al. 2020).
  void set_layer_drop(float p);

  // After a training step's passes: see Sublayer.
  void update_buffers() const;

  // Z of Algorithm 8: source [M] -> [M, D]. The context's ranks are the source's. REQUIRES: an
  // encoder-decoder.
  Tensor encode(const ModelInput& input, const Context& context) const;
  // Hidden rows of the last stack: ids [N] -> [N, D]. An encoder-decoder encodes the source first; where
  // there is none, the context's states know it. Layouts, segments and source of the context are the input's.
  Tensor hidden(const ModelInput& input, const Context& context) const;
  // See Unembedding.
  Tensor unembedding() const { return unembedding_of_tokens().weight(); }
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
  // The loss for targets of the model's output: [N] of tokens (Algorithms 11, 12 and 13) or token
  // classes, kIgnored where nothing is predicted; [S] of sequence classes; [S, 2] of spans. Embeddings have
  // none: the first half of the sequences should find the second half, each its own. Where the input has
  // sequence_targets the mean of their losses is added to the tokens' (but not to the result's numbers).
  // `scale` as in unembed_cross_entropy(). Throws Error where the output has no targets.
  CrossEntropyResult loss(const ModelInput& input, const Indices& targets, const Context& context,
                          float scale, const LossTerms& terms = {}) const;

  // Fresh memory for decoding so many sequences. REQUIRES: not an encoder.
  DecodingStates make_states(int64_t sequences) const;
  // Fresh memory of segments. REQUIRES: spec().memory > 0.
  SegmentStates make_segment_states(int64_t sequences) const;

 private:
  const Unembedding& unembedding_of_tokens() const;  // Throws Error where the output has none.
  const Classifier& classifier() const;              // likewise

  ModelSpec spec_;
  Parameters parameters_;
  Parameter* token_;  // W_e^T [V, D]
  std::unique_ptr<InputEmbedding> embedding_,
      source_embedding_;  // the second where the stacks, or their vocabularies, are apart
  std::unique_ptr<Stack> encoder_, decoder_;
  std::unique_ptr<Unembedding> unembedding_;  // of tokens
  std::unique_ptr<Pooler> pooler_;
  std::unique_ptr<Classifier> classifier_;  // where there are classes
  std::unique_ptr<Head> head_;
};

}  // namespace qkv

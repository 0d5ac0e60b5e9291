// The transformers of Phuong & Hutter over a flat batch: EDTransformer, ETransformer and DTransformer
// (Algorithms 8, 9 and 10).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "qkv/batch/batch.h"
#include "qkv/models/embedding.h"
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
  // What the last stack makes of it: ids [N] -> [N, D]. An encoder-decoder encodes the source first; where
  // there is none, the context's states know it. Layouts, segments and source of the context are the input's.
  Tensor hidden(const ModelInput& input, const Context& context) const;
  Tensor unembedding() const;  // W_u as it is used: [V, d_f]
  // What the unembedding reads: lines 10 and 11 of Algorithm 9, or a projection to the embeddings' width.
  // [N, D] -> [N, d_f].
  Tensor projected(const Tensor& hidden) const;
  // The unembedding before the softmax, after the projection of head_width: hidden -> f32 [N, V].
  Tensor logits(const Tensor& hidden) const;
  // Before a softmax: hidden -> f32 [S, C] of sequence classes, [N, C] of token classes, [N, 2] of spans.
  Tensor classes(const Tensor& hidden, const ModelInput& input, const Context& context) const;
  // Of a model with a distillation token the two that those are the mean of: by the first token, by the
  // second.
  std::pair<Tensor, Tensor> distilled_classes(const Tensor& hidden, const ModelInput& input) const;
  // A vector for each sequence: hidden -> [S, D]. REQUIRES: one stack.
  Tensor pooled(const Tensor& hidden, const ModelInput& input) const;
  // The loss for targets i32 of the model's output: [N] of tokens (Algorithms 11, 12 and 13) or token
  // classes, kIgnored where nothing is predicted; [S] of sequence classes; [S, 2] of spans. Embeddings have
  // none: the first half of the sequences should find the second half, each its own. Where the input has
  // sequence_targets the mean of their losses is added to the tokens' (but not to the result's numbers).
  // `scale` as in unembed_cross_entropy(). Throws Error where the output has no targets.
  CrossEntropyResult loss(const ModelInput& input, const Tensor& targets, const Context& context, float scale,
                          const LossTerms& terms = {}) const;

  // Fresh memory for decoding so many sequences. REQUIRES: not an encoder.
  DecodingStates make_states(int64_t sequences) const;
  // Fresh memory of segments. REQUIRES: spec().memory > 0.
  SegmentStates make_segment_states(int64_t sequences) const;

 private:
  void add_unembedding(const Initializer& normal);
  // f32 [C], or undefined.
  Tensor classifier_bias() const;
  // What the classifier reads: [S, D] or [N, D].
  Tensor class_features(const Tensor& hidden, const ModelInput& input, const Context& context) const;
  // Of tokens whose states are x; Algorithms 11, 12 and 13.
  CrossEntropyResult token_loss(const Tensor& x, const Tensor& targets, float scale,
                                const LossTerms& terms) const;
  ModelSpec spec_;
  Parameters parameters_;
  Parameter* token_;  // W_e^T [V, D]
  std::unique_ptr<InputEmbedding> embedding_,
      source_embedding_;  // the second where the stacks, or their vocabularies, are apart
  std::unique_ptr<Stack> encoder_, decoder_;
  std::unique_ptr<Linear> head_;            // W_f, b_f
  std::unique_ptr<Linear> out_projection_;  // to embeddings of another width
  std::unique_ptr<Norm> head_norm_;
  Parameter* unembedding_ = nullptr;  // W_u [V, D]; the token embedding itself when tied
  Parameter* unembedding_bias_ = nullptr;
  std::unique_ptr<Linear> pooler_;
  Parameter* classifier_ = nullptr;  // [C, D]
  Parameter* classifier_bias_ = nullptr;
  std::unique_ptr<Linear> distilled_classifier_;
};

}  // namespace qkv

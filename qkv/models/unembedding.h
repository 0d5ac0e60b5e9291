// From hidden rows to a distribution over the vocabulary.
#pragma once

#include <memory>
#include <vector>

#include "qkv/models/spec.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/norm.h"
#include "qkv/ops/cross_entropy.h"

namespace qkv {

// The rows of targets [N] that are not kIgnored.
std::vector<int32_t> predicted_rows(const Indices& targets);

// Algorithm 7 of Phuong & Hutter, after an optional projection, activation and norm (lines 10 and 11 of
// Algorithm 9), or after a projection to the embeddings' width.
class Unembedding {
 public:
  // `token`: the embedding W_e^T [V, D], which serves as W_u if the spec ties them. The spec must outlive
  // this.
  Unembedding(Parameters& parameters, const ModelSpec& spec, Parameter& token);

  Weight weight() const;  // W_u as it is used: [V, d_f]
  // The input of the unembedding: [N, D] -> [N, d_f].
  Tensor projected(const Tensor& hidden) const;
  // Logits, before the softmax: hidden -> f32 [N, V].
  Tensor logits(const Tensor& hidden) const;
  // The loss for targets [N] (Algorithms 11, 12 and 13). `scale` as in unembed_cross_entropy().
  CrossEntropyResult loss(const Tensor& hidden, const Indices& targets, float scale,
                          const LossTerms& terms) const;

 private:
  Tensor bias() const { return bias_ ? bias_->value : Tensor(); }

  const ModelSpec& spec_;
  std::unique_ptr<Linear> head_;            // W_f, b_f
  std::unique_ptr<Norm> head_norm_;         // norm of head_'s output
  std::unique_ptr<Linear> out_projection_;  // to the width of the embeddings, if different
  Parameter* weight_;                       // W_u [V, d_f]; the token embedding itself when tied
  Parameter* bias_ = nullptr;
};

}  // namespace qkv

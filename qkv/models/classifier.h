// From hidden rows to vectors of sequences and to classes.
#pragma once

#include <memory>
#include <utility>

#include "qkv/batch/batch.h"
#include "qkv/models/spec.h"
#include "qkv/nn/context.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/norm.h"
#include "qkv/ops/cross_entropy.h"

namespace qkv {

// True if scores of both mean the same classes, or as many numbers, whatever these are called.
bool same_labels(const ModelSpec& a, const ModelSpec& b);

// A vector for each sequence.
class Pooler {
 public:
  // The spec must outlive this.
  Pooler(Parameters& parameters, const ModelSpec& spec);
  // hidden [N, D] -> [S, D]: the first or last row, or the mean, and f(W x + b) of that where the spec has a
  // pooler. REQUIRES: one stack.
  Tensor pooled(const Tensor& hidden, const ModelInput& input) const;
  // f(W x + b) of each row; x where the spec has no pooler.
  Tensor transformed(const Tensor& x) const;

 private:
  const ModelSpec& spec_;
  std::unique_ptr<Linear> linear_;
  std::unique_ptr<Norm> norm_;
};

// Scores of classes, of each sequence or of each token.
class Classifier {
 public:
  // The spec and the pooler must outlive this. REQUIRES: spec.classes() > 0.
  Classifier(Parameters& parameters, const ModelSpec& spec, const Pooler& pooler);
  // Before a softmax: hidden -> f32 [S, C] of sequence classes, [N, C] of token classes, [N, 2] of spans.
  Tensor classes(const Tensor& hidden, const ModelInput& input, const Context& context) const;
  // The two of a model with a distillation token that those are the mean of: by the first token, by the
  // second.
  std::pair<Tensor, Tensor> distilled_classes(const Tensor& hidden, const ModelInput& input) const;
  bool distilled() const { return distilled_ != nullptr; }
  // For targets [S] of sequences, [N] of tokens.
  CrossEntropyResult loss(const Tensor& hidden, const ModelInput& input, const Indices& targets,
                          const Context& context, float scale, const LossTerms& terms = {}) const;
  // The scores without a cast, of the hidden rows' type.
  Tensor scores(const Tensor& hidden, const ModelInput& input, const Context& context) const;

 private:
  // The rows to classify: [S, D] or [N, D].
  Tensor features(const Tensor& hidden, const ModelInput& input, const Context& context) const;
  Tensor bias() const { return bias_ ? bias_->value : Tensor(); }

  const ModelSpec& spec_;
  const Pooler& pooler_;
  Parameter* weight_;  // [C, D]
  Parameter* bias_ = nullptr;
  std::unique_ptr<Linear> distilled_;
};

}  // namespace qkv

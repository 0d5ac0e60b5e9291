// The unembedding and the loss in one op, so that the logits of a batch are never all in memory.
#pragma once

#include <utility>
#include <vector>

#include "qkv/tensor/indices.h"
#include "qkv/tensor/weight.h"

namespace qkv {

// The losses of a batch, in nats.
struct CrossEntropyResult {
  Tensor loss;          // f32 [1]: scale times the sum of the losses; the root of a backward pass
  Tensor token_losses;  // f32 [N], -log P[target], 0 where ignored
  double total = 0;     // their sum
  int64_t count = 0;    // targets that are not ignored
  // The same sums and counts of losses that a model has besides, of tokens further on (models/mtp.h).
  std::vector<std::pair<double, int64_t>> further = {};
};

// Terms that training may add to the loss (kernels.h's CrossEntropy has the formulas).
struct LossTerms {
  float label_smoothing = 0;  // in [0, 1)
  float z_loss = 0;           // coefficient of log(Z)^2
};

// x [N, D], weight [V, D] (W_u; types as in linear()), bias f32 [V] or undefined, targets [N] with -100
// ignored. cap: logits z become cap tanh(z / cap) (Gemma 2); 0: they stay. Line 5 of Algorithms 11 and 13 of
// Phuong & Hutter after Algorithm 7, times `scale` (1 / the number of targets in the whole step, so that
// accumulated micro-batches equal the big batch). Works through the rows in chunks. While recording it
// computes the gradient in the same pass: the weight's is added to its leaf at once, so the loss must be the
// root of a backward pass, reached with gradient 1.
CrossEntropyResult unembed_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& bias,
                                         const Indices& targets, float scale, const LossTerms& terms = {},
                                         float cap = 0);

// Rows whose logits are in memory at a time.
int64_t cross_entropy_rows(int64_t vocab);

}  // namespace qkv

// Update rules over the parameter arenas, and the learning rate over time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "qkv/nn/parameter.h"
#include "qkv/train/config.h"

namespace qkv {

// An update rule with its memory.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update from the arenas' gradients, each scaled by `gradient_scale` (clipping). `step` counts from 1.
  virtual void update(Parameters& parameters, int64_t step, double learning_rate, double gradient_scale) = 0;
  // What the rule remembers, by name, to be saved and read back in place.
  virtual std::vector<std::pair<std::string, Tensor>> state() = 0;
};

// "adamw": Loshchilov & Hutter, "Decoupled weight decay regularization" (2019), with bias correction;
// matrices decay. "sgd": theta <- theta - eta grad, as Algorithms 11-13 of Phuong & Hutter print it.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, Parameters& parameters);

// The rate of a step in [1, steps]: a linear warm-up, then a cosine down to the minimum, or constant.
double learning_rate_at(const OptimizerConfig& config, int64_t step, int64_t steps);

// sqrt(sum of squares) over all gradients. Summed in blocks of fixed size: the same for every number of
// threads.
double gradient_norm(Parameters& parameters);

}  // namespace qkv

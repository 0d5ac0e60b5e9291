// Update rules over the parameter arenas.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/nn/parameter.h"
#include "qkv/optim/shard_sum.h"

namespace qkv {

// Update rule of the parameters, and its constants.
struct OptimizerConfig {
  std::string name = "adamw";  // one of optimizer_names()
  double weight_decay = 0.1;   // for matrices; norms and biases are exempt
  double momentum = 0;         // mu, for sgd
  bool nesterov = false;       // Nesterov momentum for sgd
  double beta1 = 0.9, beta2 = 0.99, epsilon = 1e-8;
};

// An update rule with its state.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update from the arenas' gradients, each scaled by `gradient_scale` (clipping). `step` counts from 1.
  virtual void update(Parameters& parameters, int64_t step, double learning_rate, double gradient_scale) = 0;
  // The state of the rule, by name, to be saved and restored in place.
  virtual std::vector<std::pair<std::string, Tensor>> state() = 0;
};

// sgd (as Algorithms 11-13 of Phuong & Hutter print it; with momentum, Polyak's or Nesterov's), adagrad,
// rmsprop, adam (decay through the gradient), adamw (decoupled decay), lion. The formulas are at Rule in
// kernels.h. For adafactor see make_adafactor().
const std::vector<std::string>& optimizer_names();
// `matrices`: the part of their arena that it updates, and has a state of; all of it without one.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, Parameters& parameters,
                                          std::optional<Part> matrices = {});

// Number of floats in state() for these parameters.
int64_t optimizer_state_size(const OptimizerConfig& config, const Parameters& parameters);

// sqrt(sum of squares) over all gradients. It is summed in blocks of fixed size, so it does not depend on
// the number of threads.
double gradient_norm(Parameters& parameters);
// The same where each rank has the gradients of its part of the matrices alone.
double gradient_norm(Parameters& parameters, Communicator& ranks);

}  // namespace qkv

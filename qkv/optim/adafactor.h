// Adafactor: second moments of a matrix remembered by its row and column sums.
#pragma once

#include "qkv/optim/optimizer.h"

namespace qkv {

// Shazeer & Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (2018), Algorithms 4
// (matrices) and 5 (vectors), without momentum: beta2_t = 1 - t^-0.8, epsilon_1 = 1e-30, epsilon_2 = 1e-3, d
// = 1; the relative step rho_t is the schedule's learning rate. Matrices decay decoupled.
std::unique_ptr<Optimizer> make_adafactor(const OptimizerConfig& config, Parameters& parameters);

// Floats it remembers.
int64_t adafactor_state_size(const Parameters& parameters);

}  // namespace qkv

// The learning rate over a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkv {

// Learning rate schedule, with its bounds.
struct ScheduleConfig {
  std::string name = "cosine";      // one of schedule_names()
  double learning_rate = 1e-3;      // eta, the peak rate
  double min_learning_rate = 1e-4;  // final rate of linear, cosine and one_cycle
  int64_t warmup_steps = 100;       // steps until the peak rate
};

// constant: eta. linear: linear decay to the minimum. cosine: half a cosine down to it (Loshchilov &
// Hutter, SGDR, 2017). inverse_sqrt: eta sqrt(warmup / step) (Vaswani et al. 2017, eq. 3, scaled to reach
// eta). one_cycle: half a cosine up from eta / 25 and half a cosine down (Smith & Topin 2018). All but
// one_cycle have a linear warm-up from 0.
const std::vector<std::string>& schedule_names();

// The rate of a step in [1, steps].
double learning_rate_at(const ScheduleConfig& schedule, int64_t step, int64_t steps);

}  // namespace qkv

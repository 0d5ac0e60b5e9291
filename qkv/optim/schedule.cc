#include "qkv/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "qkv/base/error.h"

namespace qkv {

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = {"constant", "linear", "cosine", "inverse_sqrt", "one_cycle"};
  return names;
}

double learning_rate_at(const ScheduleConfig& s, int64_t step, int64_t steps) {
  constexpr double kOneCycleStart = 1.0 / 25;
  const double t = static_cast<double>(step), warmup = static_cast<double>(s.warmup_steps);
  const double high = s.learning_rate, low = s.min_learning_rate;
  const auto half_cosine = [](double from, double to, double part) {
    return to + 0.5 * (from - to) * (1 + std::cos(std::numbers::pi * part));
  };
  if (step <= s.warmup_steps)
    return s.name == "one_cycle" ? half_cosine(high * kOneCycleStart, high, t / warmup) : high * t / warmup;
  if (s.name == "constant" || steps <= s.warmup_steps) return high;
  if (s.name == "inverse_sqrt") return high * std::sqrt(std::max(1.0, warmup) / t);
  const double done = std::min(1.0, (t - warmup) / (static_cast<double>(steps) - warmup));
  if (s.name == "linear") return high + (low - high) * done;
  check(s.name == "cosine" || s.name == "one_cycle",
        "schedule: expected constant, linear, cosine, inverse_sqrt "
        "or one_cycle, got '{}'",
        s.name);
  return half_cosine(high, low, done);
}

}  // namespace qkv

#include "qkv/infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "qkv/base/error.h"

namespace qkv {

void check_options(const SamplerOptions& o) {
  check(o.temperature >= 0 && !std::isnan(o.temperature), "temperature must be 0 or more, got {}",
        o.temperature);
  check(o.top_k >= 0, "top-k must be 0 (all) or more, got {}", o.top_k);
  check(o.top_p > 0 && o.top_p <= 1, "top-p must be in (0, 1], got {}", o.top_p);
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

int32_t sample(std::span<const float> logits, const SamplerOptions& o, double uniform) {
  for (const float z : logits)
    check(!std::isnan(z) && z < std::numeric_limits<float>::infinity(),
          "the model's logits are not finite: its weights are broken");
  if (o.temperature == 0) return argmax(logits);
  const double top = logits[argmax(logits)];
  std::vector<double> p(logits.size());
  // p^(1/tau) in the log domain; an infinite temperature leaves every possible token equally likely.
  for (size_t i = 0; i < p.size(); ++i)
    p[i] = std::isinf(logits[i]) ? 0 : std::exp((logits[i] - top) / o.temperature);

  if (o.top_k > 0 || o.top_p < 1) {
    std::vector<int32_t> order(p.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return p[a] > p[b]; });
    size_t keep = o.top_k > 0 ? std::min<size_t>(o.top_k, p.size()) : p.size();
    if (o.top_p < 1) {
      double total = 0, sum = 0;
      for (size_t i = 0; i < keep; ++i) total += p[order[i]];
      size_t n = 0;
      while (n < keep && sum < o.top_p * total) sum += p[order[n++]];
      keep = std::max<size_t>(1, n);
    }
    for (size_t i = keep; i < order.size(); ++i) p[order[i]] = 0;
  }
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  double cumulative = 0;
  int32_t last = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    last = static_cast<int32_t>(i);
    cumulative += p[i];
    if (uniform * total < cumulative) break;
  }
  return last;
}

}  // namespace qkv

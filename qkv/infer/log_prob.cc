#include "qkv/infer/log_prob.h"

#include <algorithm>

#include "qkv/kernels/kernels.h"

namespace qkv {

double log_normalizer(std::span<const float> logits) {
  return generic_kernels().log_sum_exp(std::ssize(logits), logits.data());  // summed in f64
}

std::vector<TokenLogProb> most_likely(std::span<const float> logits, int64_t count) {
  const double normalizer = log_normalizer(logits);
  std::vector<TokenLogProb> all;
  all.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({static_cast<int32_t>(i), logits[i] - normalizer});
  const auto end = all.begin() + std::min(count, static_cast<int64_t>(all.size()));
  std::partial_sort(all.begin(), end, all.end(), [](const TokenLogProb& a, const TokenLogProb& b) {
    return a.log_p > b.log_p || (a.log_p == b.log_p && a.id < b.id);
  });
  all.erase(end, all.end());
  return all;
}

}  // namespace qkv

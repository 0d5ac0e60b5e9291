// Definitions that the sources of fast_weights() share (ops/fast_weights.h). Included by its sources alone.
#pragma once

#include <cmath>
#include <vector>

#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/ops/fast_weights.h"

namespace qkv::fast_weights_parts {

inline constexpr int64_t kRun = 32;  // tokens between two states that the backward pass begins from

inline int64_t padded(int64_t n) {
  constexpr int64_t kMultiple = FastWeights::kMultiple;
  return (n + kMultiple - 1) / kMultiple * kMultiple;
}

// The inputs in the order of their gradients.
enum Slot : int { kQ, kK, kV, kDecay, kBeta, kA, kB, kFirst, kSlots };

struct Problem {
  FastWeightsInput in;
  Tensor first;
  std::vector<int32_t> offsets, key_offsets;
  bool causal;
  std::vector<int32_t> marks;

  int64_t sequences() const { return std::ssize(offsets) - 1; }
  int64_t d_k() const { return in.q.width() / in.key_heads; }
  int64_t d_v() const { return in.v.width() / in.heads; }
  int64_t columns() const { return d_v() + (in.epsilon ? 1 : 0); }  // those of S, and z
  int64_t state_width() const { return in.heads * d_k() * columns(); }
  int64_t padded_state() const { return padded(d_k()) * padded(columns()); }
  // The number that y is divided by, from z . q.
  float divisor(float sum) const {
    const float d = sum + *in.epsilon;
    if (!is_raised(sum)) return in.divisors == LeastDivisor::absolute ? std::abs(d) : d;
    return in.divisors == LeastDivisor::of_magnitude ? std::copysign(in.least_divisor, d) : in.least_divisor;
  }
  // The derivative of divisor().
  float divisor_slope(float sum) const {
    return is_raised(sum)                                                   ? 0.0F
           : in.divisors == LeastDivisor::absolute && sum + *in.epsilon < 0 ? -1.0F
                                                                            : 1.0F;
  }
  bool is_raised(float sum) const {
    const float d = sum + *in.epsilon;
    return (in.divisors == LeastDivisor::above ? d : std::abs(d)) < in.least_divisor;
  }
  bool decays_rows() const { return in.decay.defined() && in.decay.width() != in.heads; }
  bool delta() const { return in.beta.defined() || in.a.defined(); }
  int64_t key_head(int64_t head) const { return head / (in.heads / in.key_heads); }
  int64_t queries(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  int64_t keys(int64_t s) const { return key_offsets[s + 1] - key_offsets[s]; }
  // A sequence's steps: each writes a key or reads a query, or both.
  int64_t steps(int64_t s) const { return causal ? queries(s) : keys(s) + queries(s); }
  int64_t runs(int64_t s) const { return (steps(s) + kRun - 1) / kRun; }
  // Rows of the step's key and query; -1: it has none.
  int64_t key_of(int64_t s, int64_t step) const { return step < keys(s) ? key_offsets[s] + step : -1; }
  int64_t query_of(int64_t s, int64_t step) const {
    if (causal) return offsets[s] + step;
    return step < keys(s) ? -1 : offsets[s] + step - keys(s);
  }
};

// Calls f(sequence, head, first run of the sequence among all) for every head, those that share keys in one
// task.
template <typename F>
void for_heads(const Problem& p, const F& f) {
  std::vector<int64_t> runs = {0};
  for (int64_t s = 0; s < p.sequences(); ++s) runs.push_back(runs.back() + p.runs(s));
  const int64_t sharing = p.in.heads / p.in.key_heads;
  parallel_tasks(p.sequences() * p.in.key_heads, [&](int64_t task, int) {
    const int64_t s = task / p.in.key_heads, first = task % p.in.key_heads * sharing;
    for (int64_t head = first; head < first + sharing; ++head) f(s, head, runs[s]);
  });
}

}  // namespace qkv::fast_weights_parts

// Log-probabilities of tokens under the model itself: softmax of the raw logits, without sampling options.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

// A token and the logarithm of its probability.
struct TokenLogProb {
  int32_t id;
  double log_p;  // natural logarithm
};

// log sum exp of logits [V]: log P(i) = logits[i] - log_normalizer(logits).
double log_normalizer(std::span<const float> logits);

// The `count` most likely tokens (or all, if there are fewer), best first; ties go to the lower id.
std::vector<TokenLogProb> most_likely(std::span<const float> logits, int64_t count);

}  // namespace qkv

// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

namespace qkv {

// What is done to the distribution before a token is drawn from it.
struct SamplerOptions {
  double temperature = 1;  // tau of Algorithm 14: q ~ p^(1/tau). 0 takes the most likely token, 1 is
                           // faithful, large values tend to uniform
  int64_t top_k = 0;       // only the k most likely tokens; 0: all
  double top_p = 1;        // only the fewest most likely tokens whose probability reaches p
};

// Throws Error naming the option that makes no sense.
void check_options(const SamplerOptions& options);

// The index of the largest logit, the lowest such at ties.
int32_t argmax(std::span<const float> logits);

// Draws from the distribution that the options make of the logits: temperature first, then top-k, then top-p.
// `uniform` in [0, 1) is the one random number used: the token is where the cumulative distribution, in order
// of ids, passes it.
int32_t sample(std::span<const float> logits, const SamplerOptions& options, double uniform);

}  // namespace qkv

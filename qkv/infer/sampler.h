// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

// Changes to the distribution before a token is drawn from it.
struct SamplerOptions {
  double temperature = 1;  // tau of Algorithm 14: q ~ p^(1/tau). 0 takes the most likely token, 1 changes
                           // nothing, large values tend to uniform
  int64_t top_k = 0;       // only the k most likely tokens; 0: all
  double top_p = 1;        // only the fewest most likely tokens whose probability reaches p
  double min_p = 0;  // only tokens at least min_p times as likely as the most likely one (Nguyen et al. 2024)
  double typical_p = 1;  // only the fewest tokens whose probability reaches p, those with -log P nearest to
                         // the entropy first (locally typical sampling, Meister et al. 2022)
  double repetition_penalty = 1;  // divides positive logits of tokens in prompt or continuation, multiplies
                                  // others (CTRL, Keskar et al. 2019, as in Hugging Face's library)
  double frequency_penalty = 0;   // subtracted from a token's logit for each time it is in the continuation
  double presence_penalty = 0;    // subtracted once (both as OpenAI defines them; the prompt does not count)
  std::vector<int32_t> excluded = {};  // ids that are never chosen
};

// The previous tokens, which the penalties use.
struct History {
  std::span<const int32_t> prompt;
  std::span<const int32_t> continuation;
};

// Applies the repetition penalty: divides positive logits of previous tokens by `penalty`, and multiplies
// their other logits by it.
void penalise_repetition(std::span<float> logits, const History& history, double penalty);

// Throws Error naming an invalid option.
void check_options(const SamplerOptions& options);

// The index of the largest logit; ties go to the lowest index.
int32_t argmax(std::span<const float> logits);

// Draws from the logits' distribution as changed by the options; a pure function of its arguments. The
// options apply in this order: excluded ids; repetition, then frequency and presence penalty; temperature;
// top-k; top-p; min-p; typical-p. Each gets the normalized result of the previous ones. Equally likely
// tokens rank by id. `uniform` in [0, 1) is the only random number used: it selects the token where the
// cumulative distribution, in order of ids, exceeds it.
int32_t sample(std::span<const float> logits, const History& history, const SamplerOptions& options,
               double uniform);

}  // namespace qkv

// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

// What is done to the distribution before a token is drawn from it.
struct SamplerOptions {
  double temperature = 1;  // tau of Algorithm 14: q ~ p^(1/tau). 0 takes the most likely token, 1 is
                           // faithful, large values tend to uniform
  int64_t top_k = 0;       // only the k most likely tokens; 0: all
  double top_p = 1;        // only the fewest most likely tokens whose probability reaches p
  double min_p = 0;        // only tokens at least min_p times as likely as the likeliest (Nguyen et al. 2024)
  double typical_p = 1;    // only the fewest tokens whose probability reaches p, those first whose -log P is
                           // nearest to the entropy (locally typical sampling, Meister et al. 2022)
  double repetition_penalty = 1;  // logits of tokens in prompt or continuation: divided by it where positive,
                                  // else multiplied (CTRL, Keskar et al. 2019, as Hugging Face applies it)
  double frequency_penalty = 0;   // taken off the logit of a token of the continuation, times its count there
  double presence_penalty = 0;    // taken off once (both as OpenAI defines them; the prompt does not count)
  std::vector<int32_t> excluded = {};  // ids that are never chosen
};

// The tokens before the one to choose, which the penalties look at.
struct History {
  std::span<const int32_t> prompt;
  std::span<const int32_t> continuation;
};

// Divides by `penalty` the logits above 0 of tokens before, and multiplies the others of them by it.
void penalise_repetition(std::span<float> logits, const History& history, double penalty);

// Throws Error naming the option that makes no sense.
void check_options(const SamplerOptions& options);

// The index of the largest logit, the lowest such at ties.
int32_t argmax(std::span<const float> logits);

// Draws from the distribution that the options make of the logits, a pure function of its arguments. In this
// order: excluded ids; repetition, then frequency and presence penalty; temperature; top-k; top-p; min-p;
// typical-p, each of what the ones before have left, made a distribution again. Equally likely tokens rank by
// id. `uniform` in [0, 1) is the one random number used: the token is where the cumulative distribution, in
// order of ids, passes it.
int32_t sample(std::span<const float> logits, const History& history, const SamplerOptions& options,
               double uniform);

}  // namespace qkv

// Options and outputs of a beam search.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/infer/output_rules.h"

namespace qkv {

// Options of the search and of the comparison of outputs.
struct BeamOptions {
  int64_t beams = 4;
  int64_t max_new_tokens = 128;  // an output also ends at the model's context
  std::vector<int32_t> eos = {};
  double length_penalty = 1;  // outputs are compared by log P / length^length_penalty
  // When the search for a prompt ends. early: as soon as enough outputs are kept. likely: when, in
  // addition, the best beam would not beat the worst of them if it ended now. certain: when no beam can
  // beat it at any length, which differs from likely if a length_penalty above 0 favours long outputs.
  enum class Stop { early, likely, certain } stop = Stop::likely;
  // beams x patience outputs are kept for each prompt (Kasai et al. 2022).
  double patience = 1;
  // Factor of the coverage term that is added when outputs are compared (Wu et al. 2016, eq. 14): the sum
  // over the source's tokens of log min(1, attention that the token got from the whole output).
  double coverage_penalty = 0;
  std::vector<int32_t> excluded = {};  // ids that are never chosen
  double repetition_penalty = 1;       // as in SamplerOptions
  OutputRules rules = {};
  bool attention = false;  // return the attention of outputs
  // If above 0: return the best output for each of this number of different first tokens, the most likely
  // ones that do not end it. All but the first must have a probability of at least least_alternative.
  int64_t alternatives = 0;
  double least_alternative = 0;
  // For beam_search(), one element for each prompt, or none. A Request has its own.
  // Number of tokens of each prompt that see each other in a prefix LM; none: all.
  std::vector<int32_t> prefixes = {};
  // Number of each prompt's last tokens that count as output in max_new_tokens and rules.min_new_tokens.
  std::vector<int32_t> begun = {};
  // Preferred beginning of the output. As long as the output follows it, the next of these tokens has the
  // probability prefix_bias + (1 - prefix_bias) P. Any other token has (1 - prefix_bias) P.
  std::vector<std::vector<int32_t>> wished = {};
  double prefix_bias = 0;

  // Maximum number of outputs of a prompt.
  int64_t kept() const;
};

// An output and its score.
struct Hypothesis {
  std::vector<int32_t> tokens;  // new tokens, including a final eos
  double log_probability = 0;   // log-probability of all new tokens
  double score = 0;             // log_probability / length^length_penalty, plus the coverage term
  // The attention, if requested: one row for each token of the prompt after the first, then for each new
  // token; one column for each token of the source (infer/attention_rows.h).
  std::vector<std::vector<float>> attention = {};
};

}  // namespace qkv

// Beam search.
#pragma once

#include <vector>

#include "qkv/infer/generate.h"

namespace qkv {

// How outputs are searched for and compared.
struct BeamOptions {
  int64_t beams = 4;
  int64_t max_new_tokens = 128;  // an encoder-decoder also ends at its context
  std::vector<int32_t> eos = {};
  double length_penalty = 1;  // outputs are compared by log P / length^length_penalty
  // When a prompt is done: early, when there are as many outputs as are kept; likely, when besides the best
  // beam, were it an output as it stands, would not beat the worst of them; certain, when no beam can,
  // however long it becomes, which differs where a length_penalty above 0 favours long ones.
  enum class Stop { early, likely, certain } stop = Stop::likely;
  // beams x patience outputs are kept of each prompt (Kasai et al. 2022).
  double patience = 1;
  // Times the sum over the source's tokens of log min(1, attention that a token got of all the output), which
  // is added when outputs are compared (Wu et al. 2016, eq. 14).
  double coverage_penalty = 0;
  std::vector<int32_t> excluded = {};  // ids that are never chosen
  double repetition_penalty = 1;       // as SamplerOptions have it
  OutputRules rules = {};
  bool attention = false;  // outputs come with their attention
  // Above 0 outputs are the best ones with each of so many different first tokens, the likeliest that do not
  // end them and that have this probability.
  int64_t alternatives = 0;
  double least_alternative = 0;
  // Below, one for each prompt, or none.
  // How many tokens of each prompt see each other in a prefix LM; none: all.
  std::vector<int32_t> prefixes = {};
  // How many of its last tokens count as the output's in max_new_tokens and rules.min_new_tokens.
  std::vector<int32_t> begun = {};
  // Tokens that an output would rather begin with. As long as it does, the next of these tokens has the
  // probability prefix_bias + (1 - prefix_bias) P, another one (1 - prefix_bias) P.
  std::vector<std::vector<int32_t>> wished = {};
  double prefix_bias = 0;

  // Outputs of a prompt at most.
  int64_t kept() const;
};

// An output and how good it is.
struct Hypothesis {
  std::vector<int32_t> tokens;  // new ones, an ending eos included
  double log_probability = 0;   // of all of them
  double score = 0;             // log_probability / length^length_penalty, and what coverage adds
  // The attention, where options ask for it: of each token behind the prompt's first, then of the new ones,
  // to each token of the source (infer/attention_rows.h).
  std::vector<std::vector<float>> attention = {};
};

// The best outputs of each prompt (`sources` as in generate()), at most options.kept(), best first. All
// prompts are searched at once; what is done leaves the batch.
std::vector<std::vector<Hypothesis>> beam_search(const Ensemble& model,
                                                 const std::vector<std::vector<int32_t>>& prompts,
                                                 const BeamOptions& options, const Sources& sources = {});

}  // namespace qkv

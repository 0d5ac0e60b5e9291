// One step of a beam search: which tokens come next.
#pragma once

#include <vector>

#include "qkv/infer/beam.h"

namespace qkv {

// An output that is still growing.
struct Beam {
  std::vector<int32_t> tokens;
  double log_probability = 0;
  std::vector<std::vector<float>> attention = {};  // where options ask for it
};

// A beam and the token after it.
struct Candidate {
  double log_probability;
  int32_t beam, token;
};

// All that is known of one prompt's search.
struct Search {
  size_t prompt;
  std::vector<int32_t> prompt_tokens;
  int64_t begun = 0;            // tokens of the prompt that count as the output's
  int64_t most = 0;             // new tokens that an output may have
  std::vector<int32_t> wished;  // tokens that outputs would rather begin with
  std::vector<Beam> beams;
  std::vector<Hypothesis> done;  // best first
};

// A search for each prompt, which begins with one empty beam.
std::vector<Search> begin_searches(const Ensemble& model, const std::vector<std::vector<int32_t>>& prompts,
                                   const BeamOptions& options);

// The best 2 x beams continuations of one prompt's beams, best first; among equals the lower beam, then id.
// Rows of `logits` from `row` on are the beams'. Throws Error where there is none.
std::vector<Candidate> best_candidates(const Search& search, const Tensor& logits, int64_t row,
                                       const BeamOptions& options);

// The score by which options compare outputs.
double score_of(double log_probability, size_t length, const std::vector<std::vector<float>>& attention,
                const BeamOptions& options);

// Throws Error naming the option that makes no sense.
void check_options(const BeamOptions& options, size_t prompts);

}  // namespace qkv

// One step of a beam search: chooses the next tokens.
#pragma once

#include <vector>

#include "qkv/infer/beam.h"

namespace qkv {

// An output that is still growing.
struct Beam {
  std::vector<int32_t> tokens;
  double log_probability = 0;
  std::vector<std::vector<float>> attention = {};  // if requested
};

// A beam and the token after it.
struct Candidate {
  double log_probability;
  int32_t beam, token;
};

// State of one prompt's search.
struct Search {
  size_t prompt;
  std::vector<int32_t> prompt_tokens;
  int64_t begun = 0;            // tokens of the prompt that count as the output's
  int64_t most = 0;             // maximum number of new tokens of an output
  std::vector<int32_t> wished;  // preferred beginning of outputs
  std::vector<Beam> beams;
  std::vector<Hypothesis> done;  // best first
};

// Returns a search for each prompt, with one empty beam.
std::vector<Search> begin_searches(const Ensemble& model, const std::vector<std::vector<int32_t>>& prompts,
                                   const BeamOptions& options);

// Returns the best 2 x beams continuations of one prompt's beams, best first. Ties go to the lower beam,
// then to the lower id. The beams' logits are the rows from `row` on. Throws Error if there are none.
std::vector<Candidate> best_candidates(const Search& search, const Tensor& logits, int64_t row,
                                       const BeamOptions& options);

// The score by which options compare outputs.
double score_of(double log_probability, size_t length, const std::vector<std::vector<float>>& attention,
                const BeamOptions& options);

// Throws Error naming an invalid option.
void check_options(const BeamOptions& options, size_t prompts);

}  // namespace qkv

// One step of a beam search: chooses the next tokens.
#pragma once

#include <vector>

#include "qkv/infer/attention_rows.h"
#include "qkv/infer/beam_options.h"
#include "qkv/infer/ensemble.h"

namespace qkv {

// An output that is still growing.
struct Beam {
  std::vector<int32_t> tokens;
  double log_probability = 0;
  std::vector<std::vector<float>> attention = {};  // if requested
};

// A beam and the token after it.
struct Continuation {
  double log_probability;
  int32_t beam, token;
};

// State of one prompt's search.
struct Search {
  std::vector<int32_t> prompt_tokens;
  int64_t begun = 0;            // tokens of the prompt that count as the output's
  int64_t most = 0;             // maximum number of new tokens of an output
  std::vector<int32_t> wished;  // preferred beginning of outputs
  std::vector<Beam> beams;
  std::vector<Hypothesis> done;  // best first
};

// A search with one empty beam. `begun`: tokens of the prompt that count as the output's.
Search begin_search(const ModelSpec& spec, std::vector<int32_t> prompt, int64_t begun,
                    std::vector<int32_t> wished, const BeamOptions& options);

// Returns the best 2 x beams continuations of one prompt's beams, best first. Ties go to the lower beam,
// then to the lower id. rows[b]: the row of beam b's logits. Throws Error if there are none.
std::vector<Continuation> best_candidates(const Search& search, const Tensor& logits,
                                          std::span<const int32_t> rows, const BeamOptions& options);

// Grows the beams by the best continuations. `looks`, if not null, has their attention in rows as above.
// Returns the beam that each new one goes on from; none: the search has ended, and `done` has its outputs.
std::vector<int32_t> grow(Search& search, const std::vector<Continuation>& candidates,
                          const AttentionRows* looks, std::span<const int32_t> rows,
                          const BeamOptions& options);

// The score by which options compare outputs.
double score_of(double log_probability, size_t length, const std::vector<std::vector<float>>& attention,
                const BeamOptions& options);

// Throws Error naming an invalid option.
void check_options(const BeamOptions& options);

}  // namespace qkv

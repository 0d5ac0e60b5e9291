// Alternatives: other first tokens, each with the best output that begins with it.
#pragma once

#include <vector>

#include "qkv/infer/beam.h"

namespace qkv {

// Finds for each prompt an output for each of options.alternatives different first tokens: the likeliest that
// do not end it and, but for the first, have options.least_alternative of probability, in this order, each
// continued by a search of its own. beam_search() calls it where options ask for alternatives.
std::vector<std::vector<Hypothesis>> alternatives(const Ensemble& model,
                                                  const std::vector<std::vector<int32_t>>& prompts,
                                                  const BeamOptions& options, const Sources& sources);

}  // namespace qkv

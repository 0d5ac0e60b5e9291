// Alternatives: different first tokens, each with the best output that begins with it.
#pragma once

#include <vector>

#include "qkv/infer/beam.h"

namespace qkv {

// Finds for each prompt one output for each of options.alternatives different first tokens. These are the
// most likely tokens that do not end the output, most likely first. All but the first must have a
// probability of at least options.least_alternative. Each is continued by a separate search. beam_search()
// calls this if options ask for alternatives.
std::vector<std::vector<Hypothesis>> alternatives(const Ensemble& model,
                                                  const std::vector<std::vector<int32_t>>& prompts,
                                                  const BeamOptions& options, const Sources& sources);

}  // namespace qkv

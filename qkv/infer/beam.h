// Beam search.
#pragma once

#include <vector>

#include "qkv/infer/generate.h"

namespace qkv {

// Returns the best outputs of each prompt (`sources` as in generate()), at most options.kept(), best first.
// The engine searches as many at once as `sequences` says; finished ones make room for others.
std::vector<std::vector<Hypothesis>> beam_search(const Ensemble& model,
                                                 const std::vector<std::vector<int32_t>>& prompts,
                                                 const BeamOptions& options, const Sources& sources = {},
                                                 int64_t sequences = EngineOptions{}.sequences);

}  // namespace qkv

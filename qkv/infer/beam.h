// Beam search.
#pragma once

#include <vector>

#include "qkv/infer/generate.h"

namespace qkv {

// Returns the best outputs of each prompt (`sources` as in generate()), at most options.kept(), best first.
// `engine`: how many are searched and read at once; finished searches make room for others.
std::vector<std::vector<Hypothesis>> beam_search(const Ensemble& model,
                                                 const std::vector<std::vector<int32_t>>& prompts,
                                                 const BeamOptions& options, const Sources& sources = {},
                                                 EngineOptions engine = {.prompt_tokens = int64_t{1} << 30});

}  // namespace qkv

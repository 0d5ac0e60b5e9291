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
  // When a prompt is done: early, when there are `beams` outputs; likely, when besides the best beam, were it
  // an output as it stands, would not beat the worst of them; certain, when no beam can, however long it
  // becomes, which differs where a length_penalty above 0 favours long ones.
  enum class Stop { early, likely, certain } stop = Stop::likely;
  std::vector<int32_t> excluded;  // ids that are never chosen
  // log P of a token of the prompt or the output is multiplied by it (Keskar et al. 2019, CTRL, section 4.1,
  // whose logits are log P here).
  double repetition_penalty = 1;
  OutputRules rules = {};
  // Of a prefix LM, how many tokens of each prompt see each other; empty: all.
  std::vector<int32_t> prefixes = {};
};

// An output and how good it is.
struct Hypothesis {
  std::vector<int32_t> tokens;  // new ones, an ending eos included
  double log_probability = 0;   // of all of them
  double score = 0;             // log_probability / length^length_penalty
};

// The best outputs of each prompt (`sources` as in generate()), at most options.beams, best first. All
// prompts are searched at once; what is done leaves the batch.
std::vector<std::vector<Hypothesis>> beam_search(const Ensemble& model,
                                                 const std::vector<std::vector<int32_t>>& prompts,
                                                 const BeamOptions& options, const Sources& sources = {});

}  // namespace qkv

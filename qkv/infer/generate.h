// Decoding: a batch of prompts is continued token by token with remembered keys and values.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "qkv/infer/ensemble.h"
#include "qkv/infer/output_rules.h"
#include "qkv/infer/sampler.h"

namespace qkv {

// How continuations are drawn and when they end.
struct GenerateOptions {
  SamplerOptions sampler = {};
  int64_t max_new_tokens = 128;
  std::vector<int32_t> eos = {};  // a sequence ends after one of these
  OutputRules rules = {};
  uint64_t seed = 0;  // of the first prompt; the next one's is one more
  // How many of each prompt's last tokens count as the output's in max_new_tokens and rules.min_new_tokens;
  // none: none do.
  std::vector<int32_t> begun = {};
  bool cached = true;  // false: the whole sequence anew for each token (what the cache is tested against)
};

// Called with each new token as it is chosen and the logits [V] that the model gave; false ends that
// sequence.
using TokenCallback = std::function<bool(int64_t sequence, int32_t token, std::span<const float> logits)>;

// Algorithm 14 of Phuong & Hutter for several prompts (of an encoder-decoder Algorithm 15: `sources` has one
// for each prompt, and a prompt is what the output begins with, bos as a rule): returns the new tokens of
// each, an ending eos included. A prompt must hold at least one token. Where prompt and continuation outgrow
// the context (l_max) of a model that has a table of positions, each further token is predicted from the last
// l_max tokens; an encoder-decoder ends there. Prompt s draws with the seed `seed` + s, as it would alone
// with that seed; several samples of one prompt are so many equal prompts, computed once.
std::vector<std::vector<int32_t>> generate(const Ensemble& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options,
                                           const TokenCallback& on_token = nullptr,
                                           const Sources& sources = {});

}  // namespace qkv

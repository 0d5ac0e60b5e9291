// Decoding: continues a batch of prompts token by token with a KV cache.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "qkv/infer/engine.h"

namespace qkv {

// Options of sampling and of the length of outputs.
struct GenerateOptions {
  SamplerOptions sampler = {};
  int64_t max_new_tokens = 128;
  std::vector<int32_t> eos = {};  // a sequence ends after one of these
  OutputRules rules = {};
  uint64_t seed = 0;  // seed of the first prompt; that of prompt s is seed + s
  // Number of each prompt's last tokens that count as output in max_new_tokens and rules.min_new_tokens;
  // empty: none.
  std::vector<int32_t> begun = {};
  bool cached = true;  // false: recompute the whole sequence for each token (to test the cache)
};

// A request for each prompt, with its source. Throws Error if the sources do not fit.
std::vector<Request> requests_of(const ModelSpec& spec, const std::vector<std::vector<int32_t>>& prompts,
                                 const Sources& sources);

// The request that prompt number `number` becomes.
Request request_of(std::vector<int32_t> prompt, const GenerateOptions& options, int64_t number);

// Called with each new token as it is chosen and the model's logits [V]; returning false ends that
// sequence.
using TokenCallback = std::function<bool(int64_t sequence, int32_t token, std::span<const float> logits)>;

// Algorithm 14 of Phuong & Hutter for several prompts. For an encoder-decoder it is Algorithm 15: `sources`
// has one for each prompt, and a prompt is the beginning of the output, usually bos. Returns the new tokens
// of each, including a final eos. A prompt must have at least one token.
// When a sequence outgrows the context (l_max) of a model with a table of positions, each further token is
// predicted from the last l_max tokens. An encoder-decoder and a prefix LM end there. Prompt s is sampled
// with the seed `seed` + s, as it would be alone with that seed. To draw several samples of a prompt,
// repeat it; equal prompts are computed once.
std::vector<std::vector<int32_t>> generate(const Ensemble& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options,
                                           const TokenCallback& on_token = nullptr,
                                           const Sources& sources = {});

// The same in an engine, beside the requests that it has; options.cached is the engine's. Returns when all
// requests of the engine have ended.
std::vector<std::vector<int32_t>> generate(Engine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options,
                                           const TokenCallback& on_token = nullptr,
                                           const Sources& sources = {});

}  // namespace qkv

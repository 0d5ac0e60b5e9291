// Decoding: a batch of prompts is continued token by token with remembered keys and values.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "qkv/infer/output_rules.h"
#include "qkv/infer/sampler.h"
#include "qkv/models/transformer.h"

namespace qkv {

// What an encoder-decoder writes from: tokens, or rows of features where an id is kFeature.
struct Sources {
  std::vector<std::vector<int32_t>> ids = {};
  Tensor features = {};  // of all, as ModelInput has them

  Sources() = default;
  Sources(std::vector<std::vector<int32_t>> tokens) : ids(std::move(tokens)) {}
};

// The memory of a batch of sequences while they are decoded; owns the layers' states.
class DecodeState {
 public:
  DecodeState(const Transformer& model, int64_t sequences);
  // Of an encoder-decoder: one sequence for each source, which is encoded with the first tokens.
  DecodeState(const Transformer& model, const Sources& sources);

  // Feeds tokens[s] to sequence s (at least one each) and returns what the model makes of them, the rows of
  // one sequence after another, [N, D]. Throws Error when a sequence would outgrow the model's context.
  // `prefixes`: of a prefix LM's first tokens, how many of each see each other; empty: all.
  Tensor extend(const std::vector<std::vector<int32_t>>& tokens, std::span<const int32_t> prefixes = {});
  // Likewise; returns the logits after the last token of each, f32 [sequences, V].
  Tensor advance(const std::vector<std::vector<int32_t>>& tokens, std::span<const int32_t> prefixes = {});
  int64_t sequences() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t length(int64_t sequence) const { return lengths_[sequence]; }

  DecodeState fork() const;
  void reorder(std::span<const int32_t> sources);
  void truncate(int64_t sequence, int64_t length);

 private:
  const Transformer* model_;
  std::vector<int32_t> lengths_;
  Tensor source_, features_;  // not yet encoded
  Layout source_layout_;
  std::vector<std::unique_ptr<LayerState>> states_;
};

// How continuations are drawn and when they end.
struct GenerateOptions {
  SamplerOptions sampler = {};
  int64_t max_new_tokens = 128;
  std::vector<int32_t> eos = {};  // a sequence ends after one of these
  OutputRules rules = {};
  uint64_t seed = 0;   // of the first prompt; the next one's is one more
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
std::vector<std::vector<int32_t>> generate(const Transformer& model,
                                           const std::vector<std::vector<int32_t>>& prompts,
                                           const GenerateOptions& options,
                                           const TokenCallback& on_token = nullptr,
                                           const Sources& sources = {});

}  // namespace qkv

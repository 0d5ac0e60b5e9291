// A request to the engine, and the choice of its next token.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "qkv/infer/beam_options.h"
#include "qkv/infer/output_rules.h"
#include "qkv/infer/sampler.h"
#include "qkv/nn/adapter.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// A prompt to continue, and how (Algorithm 14 of Phuong & Hutter; with a source Algorithm 15).
struct Request {
  std::vector<int32_t> prompt = {};  // at least one token
  // The source of an encoder-decoder; its features are rows of a tensor, as in Sources.
  std::vector<int32_t> source = {};
  Tensor features = {};
  std::vector<int32_t> globals = {};  // flags of global tokens, one for each of the source; empty: none

  SamplerOptions sampler = {};
  int64_t max_new_tokens = 128;
  std::vector<int32_t> eos = {};  // the output ends after one of these
  OutputRules rules = {};
  uint64_t seed = 0;
  // Sets the logits of tokens that may not come after `written` to minus infinity; null: all may. A pure
  // function, which several threads may call.
  std::function<void(std::span<const int32_t> written, std::span<float> logits)> mask = {};
  // Outputs are searched for by these options, in place of those above, and come all at once.
  std::optional<BeamOptions> search = {};
  std::vector<int32_t> wished = {};  // preferred beginning of a search's outputs; see BeamOptions::wished

  // Changes the model for this request (LoRA); null: nothing does. Not in an ensemble.
  std::shared_ptr<const AdapterWeights> adapter = {};
  int64_t prefix = 0;    // first tokens of the prompt that see each other in a prefix LM; 0: all
  int64_t begun = 0;     // so many last tokens of the prompt count as output in limits of its length
  int64_t priority = 0;  // higher ones begin first, and are interrupted last; equals in order of arrival
};

// The token after `written`, by the logits [V] and the request's options. A pure function: token number i
// takes its random number from the request's seed and i.
int32_t next_token(std::span<const float> logits, const Request& request, std::span<const int32_t> written);

}  // namespace qkv

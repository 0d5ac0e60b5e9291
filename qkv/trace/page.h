// A pass of a model as one HTML page, without a network: attention, the logit lens, contributions, neurons.
#pragma once

#include <string>

#include "qkv/base/json.h"
#include "qkv/trace/walk.h"

namespace qkv {

// The page of what a model computes from an input of one sequence. Parts that the model does not have are
// left out: the lens (by maps of the file `tuned`, if there is one: TunedLens) and contributions need logits,
// and blocks that the functions of lens.h read.
std::string trace_page(const Transformer& model, const ModelInput& input, const WalkLabels& labels,
                       const std::string& title, const std::string& text, const std::string& tuned = "");

// The attention of all heads and the logit lens of such a pass, as the page has them: "tokens" (id, piece),
// "attention" (a byte for each probability, in base 64) and "lens" (by layer and token the likeliest pieces).
OrderedJson attention_and_lens(const Transformer& model, const ModelInput& input, const WalkLabels& labels);

}  // namespace qkv

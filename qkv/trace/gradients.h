// Gradients of a model's answer with respect to its named values: saliency, integrated gradients, attribution
// patching.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qkv/trace/intervention.h"

namespace qkv {

// A named value of a pass, and the gradient with respect to it, of the same shape; 0 where nothing depends on
// it.
struct TracedGradient {
  TracedValue value, gradient;
};

struct Gradients {
  double answer = 0;                   // the question's value
  std::vector<TracedGradient> values;  // in the order of the pass

  // Throws Error if there is no such value.
  const TracedGradient& at(std::string_view name) const;
};

// Runs a model with changes, forward and backward: the gradients of the answer to a question with respect to
// the values whose names fit one of the patterns (see Trace), as they are after the changes.
Gradients gradients_of(const Transformer& model, const ModelInput& input, const Question& question,
                       std::vector<std::string> patterns, std::vector<Change> changes = {});

// The shares of tokens in an answer.
struct Saliency {
  std::vector<double> tokens;      // by rows of the input embedding
  double answer = 0, without = 0;  // that of the input, and that of the baseline
};

// Gradient times input: the scalar product of each row of the stack's input embedding with the gradient there
// (Simonyan et al. 2014; Shrikumar et al. 2017). `stack`: "encoder" or "decoder". The baseline is 0 in a
// model that is linear, and is not computed.
Saliency gradient_times_input(const Transformer& model, const ModelInput& input, const Question& question,
                              const std::string& stack);

// Integrated gradients (Sundararajan et al. 2017, eq. 3): the gradient at `steps` points between the
// embedding of `baseline`, an input of as many tokens, and that of the input, times their difference. The
// tokens' shares sum to answer - without, as far as the points resolve the path.
Saliency integrated_gradients(const Transformer& model, const ModelInput& input, const ModelInput& baseline,
                              const Question& question, const std::string& stack, int64_t steps);

}  // namespace qkv

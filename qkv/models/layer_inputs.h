// Inputs of all blocks from the tokens, beside the residual stream.
#pragma once

#include <string>

#include "qkv/models/spec.h"
#include "qkv/nn/linear.h"

namespace qkv {

// Per-layer embeddings (Gemma 3n and 4): for each token and layer the sum of a row of a table, times sqrt(d),
// and of an RMS-normalised projection of the token's embedding; divided by sqrt(2).
class LayerInputs {
 public:
  // Names of parameters begin with `name` ("embedding"). REQUIRES: spec.layer_input_width > 0.
  LayerInputs(Parameters& parameters, const std::string& name, const ModelSpec& spec);
  // ids [N], embedded x [N, D] -> [N, layers d].
  Tensor forward(const Indices& ids, const Tensor& x, const Context& context) const;

 private:
  int64_t layers_, width_;
  float epsilon_, projection_scale_;
  Parameter* table_;  // [V, layers d]
  Linear projection_;
  Parameter* gamma_;  // f32 [d]
};

}  // namespace qkv

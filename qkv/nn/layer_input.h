// A block's own input of each token, beside the residual stream (Gemma 3n and 4, per-layer embeddings).
#pragma once

#include <string>

#include "qkv/nn/linear.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

// W_out (f(W_gate x) .* e), with the block's input e [N, d] from the context.
class LayerInput : public Sublayer {
 public:
  // `inputs`: d.
  LayerInput(Parameters& parameters, const std::string& name, int64_t width, int64_t inputs,
             Activation activation, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  std::string name_;
  Activation activation_;
  Linear gate_, out_;
};

}  // namespace qkv

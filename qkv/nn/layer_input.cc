#include "qkv/nn/layer_input.h"

#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"

namespace qkv {

LayerInput::LayerInput(Parameters& parameters, const std::string& name, int64_t width, int64_t inputs,
                       Activation activation, InitStd std)
    : name_(name),
      activation_(activation),
      gate_(parameters, name + ".gate", width, inputs, false, std.inner),
      out_(parameters, name + ".out", inputs, width, false, std.out) {}

Tensor LayerInput::forward(const Tensor& x, const Context& context) const {
  check(context.layer_input.defined(), "{}: the pass has no inputs of layers", name_);
  Tensor hidden = gated(activation_, join_columns(gate_.forward(x, context), context.layer_input));
  context.visit(name_, ".hidden", hidden);
  return out_.forward(hidden, context);
}

}  // namespace qkv

#include "qkv/nn/wrappers.h"

#include "qkv/ops/elementwise.h"

namespace qkv {

Tensor Normed::forward(const Tensor& x, const Context& context, LayerState* state) const {
  return inner_->forward(norm_.forward(x, context), context, state);
}

Tensor OutputNormed::forward(const Tensor& x, const Context& context, LayerState* state) const {
  return norm_.forward(inner_->forward(x, context, state), context);
}

Tensor SideBySide::forward(const Tensor& x, const Context& context, LayerState* state) const {
  return add(inner_->forward(x, context, state), feed_forward_->forward(x, context, nullptr));
}

Tensor Multiplied::forward(const Tensor& x, const Context& context, LayerState* state) const {
  return scaled(inner_->forward(x, context, state), factor_);
}

}  // namespace qkv

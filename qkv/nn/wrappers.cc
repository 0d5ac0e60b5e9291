#include "qkv/nn/wrappers.h"

#include "qkv/ops/elementwise.h"

namespace qkv {

Tensor Normed::forward(const Tensor& x, const Context& context) const {
  return inner_->forward(norm_.forward(x, context), context);
}

Tensor OutputNormed::forward(const Tensor& x, const Context& context) const {
  return norm_.forward(inner_->forward(x, context), context);
}

Tensor SideBySide::forward(const Tensor& x, const Context& context) const {
  return add(inner_->forward(x, context), feed_forward_->forward(x, context));
}

Tensor Multiplied::forward(const Tensor& x, const Context& context) const {
  return scaled(inner_->forward(x, context), factor_);
}

}  // namespace qkv

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
  Tensor a = inner_->forward(x, context), f = feed_forward_->forward(x, context);
  context.visit(names_.first, ".branch", a);
  context.visit(names_.second, ".branch", f);
  return add(a, f);
}

Tensor Multiplied::forward(const Tensor& x, const Context& context) const {
  return scaled(inner_->forward(x, context), factor_);
}

}  // namespace qkv

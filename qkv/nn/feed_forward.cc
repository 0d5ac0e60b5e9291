#include "qkv/nn/feed_forward.h"

#include "qkv/ops/elementwise.h"

namespace qkv {

FeedForward::FeedForward(Parameters& parameters, const std::string& name, int64_t width,
                         const FeedForwardSpec& spec, InitStd std)
    : name_(name),
      spec_(spec),
      up_(parameters, name + ".up", width, (spec.gated ? 2 : 1) * spec.hidden, spec.bias, std.inner),
      down_(parameters, name + ".down", spec.hidden, width, spec.bias, std.out) {
  for (int64_t i = 1; i < spec.hidden_layers; ++i)
    inner_.emplace_back(parameters, fmt::format("{}.inner.{}", name, i), spec.hidden, spec.hidden, spec.bias,
                        std.inner);
}

Tensor FeedForward::forward(const Tensor& x, const Context& context) const {
  const Tensor up = up_.forward(x, context);
  Tensor hidden = spec_.gated ? gated(spec_.activation, up) : activation(spec_.activation, up);
  for (const Linear& layer : inner_) hidden = activation(spec_.activation, layer.forward(hidden, context));
  context.visit(name_ + ".hidden", hidden);
  return down_.forward(hidden, context);
}

}  // namespace qkv

#include "qkv/nn/feed_forward.h"

#include "qkv/ops/elementwise.h"
#include "qkv/ops/xielu.h"

namespace qkv {

FeedForward::FeedForward(Parameters& parameters, const std::string& name, int64_t width,
                         const FeedForwardSpec& spec, InitStd std)
    : name_(name),
      spec_(spec),
      up_(parameters, name + ".up", width, (spec.gated ? 2 : 1) * spec.hidden, spec.bias, std.inner),
      down_(parameters, name + ".down", spec.hidden, width, spec.bias, std.out) {
  if (spec.activation == Activation::xielu) {
    const auto number = [&](const char* of, float start) {
      return &parameters.add(name + of, {1}, ParameterKind::vector, {Initializer::Kind::constant, 0, start});
    };
    above_ = number(".alpha_p", kXieluAbove);
    below_ = number(".alpha_n", kXieluBelow);
  }
  for (int64_t i = 1; i < spec.hidden_layers; ++i)
    inner_.emplace_back(parameters, fmt::format("{}.inner.{}", name, i), spec.hidden, spec.hidden, spec.bias,
                        std.inner);
}

Tensor activated(const FeedForwardSpec& spec, const Tensor& up) {
  if (!spec.gated) return activation(spec.activation, up);
  return gated(spec.activation, spec.gate_limit > 0 ? limited_gate(up, spec.gate_limit) : up);
}

Tensor FeedForward::forward(const Tensor& x, const Context& context) const {
  Tensor up = up_.forward(x, context);
  context.visit(name_, ".up", up);
  Tensor hidden = above_ != nullptr ? xielu(up, above_->value, below_->value) : activated(spec_, up);
  for (const Linear& layer : inner_) hidden = activation(spec_.activation, layer.forward(hidden, context));
  context.visit(name_, ".hidden", hidden);
  return down_.forward(hidden, context);
}

}  // namespace qkv

#include "qkv/nn/feed_forward.h"

#include "qkv/ops/elementwise.h"
#include "qkv/ops/products.h"
#include "qkv/ops/token_shift.h"
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
  if (spec.channel_mix != ChannelMix::none) {
    shift_ = std::make_unique<TokenShift>(width);
    of_hidden_ = &add_shift(parameters, name + ".shift.k", width, 0.5F);
  }
  if (spec.channel_mix == ChannelMix::rwkv4) {
    of_receptance_ = &add_shift(parameters, name + ".shift.r", width, 0.5F);
    receptance_ = std::make_unique<Linear>(parameters, name + ".receptance", width, width, false, std.inner);
  }
  for (int64_t i = 1; i < spec.hidden_layers; ++i)
    inner_.emplace_back(parameters, fmt::format("{}.inner.{}", name, i), spec.hidden, spec.hidden, spec.bias,
                        std.inner);
}

Tensor activated(const FeedForwardSpec& spec, const Tensor& up) {
  if (!spec.gated) return activation(spec.activation, up);
  return gated(spec.activation, spec.gate_limit > 0 ? limited_gate(up, spec.gate_limit) : up);
}

void FeedForward::add_states(DecodingStates& states, int64_t sequences) const {
  if (shift_) shift_->add_states(states, sequences);
}

Tensor FeedForward::forward(const Tensor& x, const Context& context) const {
  const Tensor before = shift_ ? shift_->before(x, context) : Tensor();
  const bool own_part = spec_.channel_mix == ChannelMix::rwkv4;  // else the part of the row before
  const Tensor read = !shift_    ? x
                      : own_part ? mixed(before, x, of_hidden_->value)
                                 : mixed(x, before, of_hidden_->value);
  Tensor up = up_.forward(read, context);
  context.visit(name_, ".up", up);
  Tensor hidden = above_ != nullptr ? xielu(up, above_->value, below_->value) : activated(spec_, up);
  for (const Linear& layer : inner_) hidden = activation(spec_.activation, layer.forward(hidden, context));
  context.visit(name_, ".hidden", hidden);
  const Tensor out = down_.forward(hidden, context);
  if (!receptance_) return out;
  const Tensor receptance = receptance_->forward(mixed(before, x, of_receptance_->value), context);
  return product(activation(Activation::sigmoid, receptance), out);
}

}  // namespace qkv

#include "qkv/nn/linear.h"

namespace qkv {

Linear::Linear(Parameters& parameters, const std::string& name, int64_t in, int64_t out, bool bias, float std,
               IdleBias idle)
    : weight_(&parameters.add(name + ".weight", {out, in}, ParameterKind::matrix,
                              {Initializer::Kind::normal, std})),
      idle_(idle),
      adapters_(parameters, weight_->name, in, out) {
  weight_->product = weight_->any_type = true;
  if (bias) bias_ = &parameters.add(name + ".bias", {out}, ParameterKind::vector, {Initializer::Kind::zeros});
}

Tensor Linear::forward(const Tensor& x, const Context& context, const Layout& layout) const {
  Tensor y = linear(x, weight_->weight(), bias_ ? bias_->value : Tensor(), idle_);
  if (adapters_.any()) y = adapters_.add(std::move(y), x, context);
  if (context.adapters.empty()) return y;
  return add_adapters_of_sequences(std::move(y), x, weight_->name, context.adapters, layout);
}

}  // namespace qkv

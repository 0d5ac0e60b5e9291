#include "qkv/models/layer_inputs.h"

#include <cmath>
#include <numbers>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/embedding.h"
#include "qkv/ops/group_norm.h"

namespace qkv {

LayerInputs::LayerInputs(Parameters& parameters, const std::string& name, const ModelSpec& spec)
    : layers_(spec.layers),
      width_(spec.layer_input_width),
      epsilon_(spec.norm_epsilon),
      projection_scale_(1 / std::sqrt(static_cast<float>(spec.width))),
      table_(&parameters.add(name + ".layers", {spec.vocab_size, layers_ * width_}, ParameterKind::matrix,
                             {Initializer::Kind::normal, spec.init_std})),
      projection_(parameters, name + ".layers_projection", spec.width, layers_ * width_, false,
                  spec.init_std),
      gamma_(&parameters.add(name + ".layers_norm.gamma", {width_}, ParameterKind::vector,
                             {Initializer::Kind::ones})) {}

Tensor LayerInputs::forward(const Indices& ids, const Tensor& x, const Context& context) const {
  const Tensor of_token =
      scaled(embedding(ids, table_->value, "token id"), std::sqrt(static_cast<float>(width_)));
  const Tensor of_embedding = group_rms_norm(scaled(projection_.forward(x, context), projection_scale_),
                                             {0, layers_, width_}, gamma_->value, epsilon_);
  return scaled(add(of_token, of_embedding), 1 / std::numbers::sqrt2_v<float>);
}

}  // namespace qkv

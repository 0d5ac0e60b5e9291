#include "qkv/nn/gated_delta.h"

#include <cmath>
#include <limits>

#include "qkv/nn/state_space.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/feature_map.h"
#include "qkv/ops/group_norm.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/time_step.h"

namespace qkv {

GatedDeltaNet::GatedDeltaNet(Parameters& parameters, const std::string& name, const GatedDeltaSpec& spec,
                             int64_t width, float norm_epsilon, InitStd std)
    : spec_(spec),
      norm_epsilon_(norm_epsilon),
      in_(parameters, name + ".in", width, 2 * keys() + 2 * values() + 2 * spec.heads, false, std.inner),
      convolution_(parameters, name + ".convolution", 2 * keys() + values(), spec.kernel, false),
      step_bias_(&add_step_bias(parameters, name + ".step_bias", spec.heads)),
      log_rate_(&add_log_rates(parameters, name + ".log_rate", spec.heads)),
      gamma_(&parameters.add(name + ".gate_norm.gamma", {spec.d_v}, ParameterKind::vector,
                             {Initializer::Kind::ones})),
      out_(parameters, name + ".out", values(), width, false, std.out) {}

ReplayedMixer::Size GatedDeltaNet::size() const {
  return {convolution_.state_width() + spec_.heads * spec_.d_k * spec_.d_v,
          convolution_.channels() + 2 * spec_.heads};
}

Tensor GatedDeltaNet::forward(const Tensor& x, const Context& context) const {
  const Tensor projected = in_.forward(x, context);
  const int64_t inputs = size().inputs;
  const Tensor y = read(columns_of(projected, 0, inputs), context),
               gate = columns_of(projected, inputs, projected.width()),
               normed = group_rms_norm(y, {0, spec_.heads, spec_.d_v}, gamma_->value, norm_epsilon_);
  return out_.forward(gated(Activation::silu, join_columns(gate, normed)), context);
}

ReplayedMixer::Pass GatedDeltaNet::pass(const Tensor& rows, const Tensor& first,
                                        std::span<const int32_t> offsets,
                                        std::span<const int32_t> marks) const {
  const int64_t channels = convolution_.channels(), before = convolution_.state_width(), heads = spec_.heads;
  const Tensor mixed = columns_of(rows, 2 * heads, 2 * heads + channels);
  const Tensor x = activation(Activation::silu, convolution_.forward(mixed, first, offsets));
  const auto unit = [&](int64_t begin) {
    return feature_map(FeatureMap::unit, columns_of(x, begin, begin + keys()), spec_.key_heads);
  };
  const Tensor of_beta = columns_of(rows, 0, heads), of_decay = columns_of(rows, heads, 2 * heads);
  const Tensor steps = time_steps(of_decay, step_bias_->value, 0, std::numeric_limits<float>::infinity());
  const FastWeightsResult r = fast_weights(
      {.heads = heads,
       .key_heads = spec_.key_heads,
       .q = unit(0),
       .k = unit(keys()),
       .v = columns_of(x, 2 * keys(), channels),
       .decay = log_decays(steps, log_rate_->value),
       .beta = activation(Activation::sigmoid, convert(of_beta, DType::f32)),
       .scale = 1 / std::sqrt(static_cast<float>(spec_.d_k))},
      first.defined() ? columns_of(first, before, size().width) : Tensor(), offsets, offsets, true, marks);
  return convolution_.before({r.y, r.state, r.marked}, mixed, first, offsets, marks);
}

}  // namespace qkv

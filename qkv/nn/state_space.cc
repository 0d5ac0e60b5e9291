#include "qkv/nn/state_space.h"

#include <cmath>
#include <limits>
#include <vector>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/group_norm.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/products.h"
#include "qkv/ops/selective_scan.h"
#include "qkv/ops/time_step.h"

namespace qkv {

namespace {

Initializer listed(std::vector<float> values) {
  return {Initializer::Kind::listed, 0, 0, std::move(values)};
}

Parameter& add_ones(Parameters& parameters, const std::string& name, int64_t count) {
  return parameters.add(name, {count}, ParameterKind::vector, {Initializer::Kind::ones});
}

// The first states, where there are any, without those of a convolution.
Tensor behind(const Convolution& convolution, const Tensor& first) {
  return first.defined() ? columns_of(first, convolution.state_width(), first.width()) : Tensor();
}

constexpr float kNoLimit = std::numeric_limits<float>::infinity();

}  // namespace

Parameter& add_step_bias(Parameters& parameters, const std::string& name, int64_t count) {
  constexpr double kLow = 0.001, kHigh = 0.1;
  std::vector<float> bias;
  for (int64_t i = 0; i < count; ++i) {
    const double share = count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0.5,
                 step = kLow * std::pow(kHigh / kLow, share);
    bias.push_back(static_cast<float>(std::log(std::expm1(step))));
  }
  return parameters.add(name, {count}, ParameterKind::vector, listed(std::move(bias)));
}

Parameter& add_log_rates(Parameters& parameters, const std::string& name, int64_t count) {
  std::vector<float> rates;
  for (int64_t i = 1; i <= count; ++i) rates.push_back(static_cast<float>(std::log(static_cast<double>(i))));
  return parameters.add(name, {count}, ParameterKind::vector, listed(std::move(rates)));
}

Mamba::Mamba(Parameters& parameters, const std::string& name, const MambaSpec& spec, int64_t width,
             float norm_epsilon, InitStd std)
    : spec_(spec),
      norm_epsilon_(norm_epsilon),
      in_(parameters, name + ".in", width, 2 * spec.inner, spec.bias, std.inner),
      convolution_(parameters, name + ".convolution", spec.inner, spec.kernel, spec.convolution_bias),
      select_(parameters, name + ".select", spec.inner, spec.rank + 2 * spec.state, false, std.inner),
      step_(parameters, name + ".step", spec.rank, spec.inner, false,
            1 / std::sqrt(static_cast<float>(spec.rank))),
      step_bias_(&add_step_bias(parameters, name + ".step_bias", spec.inner)),
      skip_(&add_ones(parameters, name + ".skip", spec.inner)),
      out_(parameters, name + ".out", spec.inner, width, spec.bias, std.out) {
  std::vector<float> rates;
  for (int64_t c = 0; c < spec.inner; ++c)
    for (int64_t i = 1; i <= spec.state; ++i)
      rates.push_back(static_cast<float>(std::log(static_cast<double>(i))));
  log_rate_ = &parameters.add(name + ".log_rate", {spec.inner, spec.state}, ParameterKind::vector,
                              listed(std::move(rates)));
  if (!spec.norms) return;
  step_norm_ = &add_ones(parameters, name + ".step_norm.gamma", spec.rank);
  b_norm_ = &add_ones(parameters, name + ".B_norm.gamma", spec.state);
  c_norm_ = &add_ones(parameters, name + ".C_norm.gamma", spec.state);
}

// A token's inputs: x before the convolution, then x, B and C and what steps are made of.
ReplayedMixer::Size Mamba::size() const {
  return {convolution_.state_width() + spec_.inner * spec_.state, 3 * spec_.inner + 2 * spec_.state};
}

Tensor Mamba::forward(const Tensor& input, const Context& context) const {
  const int64_t inner = spec_.inner, rank = spec_.rank, n = spec_.state;
  const Tensor projected = in_.forward(input, context), x = columns_of(projected, 0, inner),
               gate = columns_of(projected, inner, 2 * inner);
  const Tensor u =
      activation(Activation::silu, convolution_.forward(x, first(context), context.layout.offsets));
  Tensor selected = select_.forward(u, context);
  if (spec_.norms) {
    selected = group_rms_norm(selected, {0, 1, rank}, step_norm_->value, norm_epsilon_);
    selected = group_rms_norm(selected, {rank, 1, n}, b_norm_->value, norm_epsilon_);
    selected = group_rms_norm(selected, {rank + n, 1, n}, c_norm_->value, norm_epsilon_);
  }
  const Tensor steps = step_.forward(columns_of(selected, 0, rank), context),
               rows = join_columns(join_columns(x, u),
                                   join_columns(columns_of(selected, rank, rank + 2 * n), steps));
  const Tensor y = read(rows, context);
  return out_.forward(gated(Activation::silu, join_columns(gate, y)), context);
}

ReplayedMixer::Pass Mamba::pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
                                std::span<const int32_t> marks) const {
  const int64_t inner = spec_.inner, n = spec_.state, at_B = 2 * inner, at_C = at_B + n, at_steps = at_C + n;
  const SelectiveScanResult r = selective_scan(
      {.x = columns_of(rows, inner, at_B),
       .steps = time_steps(columns_of(rows, at_steps, at_steps + inner), step_bias_->value, 0, kNoLimit),
       .log_rates = log_rate_->value,
       .B = columns_of(rows, at_B, at_C),
       .C = columns_of(rows, at_C, at_steps),
       .skip = skip_->value},
      behind(convolution_, first), offsets, marks);
  return convolution_.before({r.y, r.state, r.marked}, columns_of(rows, 0, inner), first, offsets, marks);
}

Mamba2::Mamba2(Parameters& parameters, const std::string& name, const Mamba2Spec& spec, int64_t width,
               float norm_epsilon, InitStd std)
    : spec_(spec),
      norm_epsilon_(norm_epsilon),
      in_(parameters, name + ".in", width, 2 * inner() + 2 * shared() + spec.heads, spec.bias, std.inner),
      convolution_(parameters, name + ".convolution", inner() + 2 * shared(), spec.kernel,
                   spec.convolution_bias),
      step_bias_(&add_step_bias(parameters, name + ".step_bias", spec.heads)),
      log_rate_(&add_log_rates(parameters, name + ".log_rate", spec.heads)),
      skip_(&add_ones(parameters, name + ".skip", spec.heads)),
      gamma_(&add_ones(parameters, name + ".gate_norm.gamma", inner())),
      out_(parameters, name + ".out", inner(), width, spec.bias, std.out) {}

ReplayedMixer::Size Mamba2::size() const {
  return {convolution_.state_width() + inner() * spec_.state, convolution_.channels() + spec_.heads};
}

Tensor Mamba2::forward(const Tensor& x, const Context& context) const {
  const Tensor projected = in_.forward(x, context), gate = columns_of(projected, 0, inner()),
               y = read(columns_of(projected, inner(), projected.width()), context),
               product = gated(Activation::silu, join_columns(gate, y));
  return out_.forward(group_rms_norm(product, {0, 1, inner()}, gamma_->value, norm_epsilon_), context);
}

ReplayedMixer::Pass Mamba2::pass(const Tensor& rows, const Tensor& first, std::span<const int32_t> offsets,
                                 std::span<const int32_t> marks) const {
  const int64_t channels = convolution_.channels();
  const Tensor mixed = columns_of(rows, 0, channels),
               all = activation(Activation::silu, convolution_.forward(mixed, first, offsets)),
               x = columns_of(all, 0, inner()),
               steps = time_steps(columns_of(rows, channels, channels + spec_.heads), step_bias_->value,
                                  spec_.step_low, spec_.step_high > 0 ? spec_.step_high : kNoLimit);
  const FastWeightsResult r = fast_weights({.heads = spec_.heads,
                                            .key_heads = spec_.groups,
                                            .q = columns_of(all, inner() + shared(), channels),
                                            .k = columns_of(all, inner(), inner() + shared()),
                                            .v = scaled_heads(x, steps),
                                            .decay = log_decays(steps, log_rate_->value)},
                                           behind(convolution_, first), offsets, offsets, true, marks);
  return convolution_.before({add(r.y, scaled_heads(x, skip_->value)), r.state, r.marked}, mixed, first,
                             offsets, marks);
}

}  // namespace qkv

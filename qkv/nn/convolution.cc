#include "qkv/nn/convolution.h"

#include <cmath>

#include "qkv/ops/parts.h"
#include "qkv/ops/products.h"

namespace qkv {

// Weights begin with the variance of numbers that are uniform in +-1 / sqrt(kernel), as published code has
// them.
Convolution::Convolution(Parameters& parameters, const std::string& name, int64_t channels, int64_t kernel,
                         bool bias)
    : channels_(channels),
      kernel_(kernel),
      weight_(
          &parameters.add(name + ".weight", {channels, kernel}, ParameterKind::vector,
                          {Initializer::Kind::normal, 1 / std::sqrt(3.0F * static_cast<float>(kernel))})) {
  if (bias)
    bias_ = &parameters.add(name + ".bias", {channels}, ParameterKind::vector, {Initializer::Kind::zeros});
}

Tensor Convolution::tail(const Tensor& first) const {
  if (!first.defined() || first.width() == state_width()) return first;
  return columns_of(first, 0, state_width());
}

Tensor Convolution::forward(const Tensor& x, const Tensor& first, std::span<const int32_t> offsets) const {
  return short_convolution(x, weight_->value, bias_ ? bias_->value : Tensor(), tail(first), offsets);
}

ReplayedMixer::Pass Convolution::before(ReplayedMixer::Pass rest, const Tensor& x, const Tensor& first,
                                        std::span<const int32_t> offsets,
                                        std::span<const int32_t> marks) const {
  if (!first.defined()) return {rest.y, {}, {}};  // nothing is remembered
  const Tensor rows = tail(first);
  const auto joined = [&](std::span<const int32_t> counts, const Tensor& state) {
    const Tensor own = convolution_tail(x, rows, offsets, counts, kernel_);
    return state.defined() ? join_columns(own, state) : own;
  };
  std::vector<int32_t> all;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) all.push_back(offsets[s + 1] - offsets[s]);
  return {rest.y, joined(all, rest.state), marks.empty() ? Tensor() : joined(marks, rest.marked)};
}

GatedConvolution::GatedConvolution(Parameters& parameters, const std::string& name,
                                   const GatedConvolutionSpec& spec, int64_t width, InitStd std)
    : in_(parameters, name + ".in", width, 3 * width, spec.bias, std.inner),
      convolution_(parameters, name + ".convolution", width, spec.kernel, spec.bias),
      out_(parameters, name + ".out", width, width, spec.bias, std.out) {}

Tensor GatedConvolution::forward(const Tensor& x, const Context& context) const {
  const int64_t d = x.width();
  const Tensor projected = in_.forward(x, context), b = columns_of(projected, 0, d),
               c = columns_of(projected, d, 2 * d), value = columns_of(projected, 2 * d, 3 * d);
  const Tensor y = read(product(b, value), context);
  return out_.forward(product(c, y), context);
}

ReplayedMixer::Pass GatedConvolution::pass(const Tensor& rows, const Tensor& first,
                                           std::span<const int32_t> offsets,
                                           std::span<const int32_t> marks) const {
  return convolution_.before({convolution_.forward(rows, first, offsets), {}, {}}, rows, first, offsets,
                             marks);
}

}  // namespace qkv

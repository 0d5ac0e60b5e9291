#include "qkv/nn/random_feature_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "qkv/nn/random_vectors.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/fast_weights.h"
#include "qkv/ops/feature_map.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/products.h"
#include "qkv/ops/time_step.h"

namespace qkv {
namespace {

constexpr float kLeastDivisor = 1e-6F;
// The published code multiplies cosines and sines by 0.1 rather than m^(-1/2), so that its 1 is this, divided
// by m.
constexpr float kLeastOfUnit = 100;

// ln sigmoid(x), f32.
Tensor log_sigmoid(const Tensor& x) {
  return scaled(time_steps(scaled(x, -1), Tensor::zeros({x.width()}, DType::f32), 0,
                           std::numeric_limits<float>::infinity()),
                -1);
}

}  // namespace

RandomFeatureAttention::RandomFeatureAttention(Parameters& parameters, const std::string& name,
                                               const RandomFeatureSpec& spec, int64_t width, bool causal,
                                               uint32_t site, InitStd std)
    : spec_(spec),
      width_(width),
      causal_(causal),
      site_(site),
      q_(parameters, name + ".q", width, width, true, std.inner),
      k_(parameters, name + ".k", width, width, true, std.inner),
      v_(parameters, name + ".v", width, width, true, std.inner),
      out_(parameters, name + ".out", width, width, true, std.out) {
  if (spec.gated)
    gate_ = std::make_unique<Linear>(parameters, name + ".gate", width, spec.heads, true, std.inner);
  const Initializer::Kind kind = spec.orthogonal ? Initializer::Kind::orthogonal : Initializer::Kind::normal;
  vectors_ = &parameters.add(name + ".vectors", {spec.count, width / spec.heads}, ParameterKind::vector,
                             {.kind = kind, .std = 1});
  vectors_->learned = false;
  if (spec.unit)
    factors_ = &parameters.add(name + ".factors", {width}, ParameterKind::vector, {Initializer::Kind::ones});
}

ReplayedMixer::Size RandomFeatureAttention::size() const {
  const int64_t d = width_ / spec_.heads, numbers = spec_.heads * features();
  return {spec_.heads + numbers * (d + 1), 2 * numbers + width_ + spec_.heads * (spec_.gated ? 2 : 1)};
}

RandomFeatures RandomFeatureAttention::features_of(const Linear& map, bool keys, const Tensor& x,
                                                   const Context& context) const {
  const Tensor vectors = vectors_->value.detach(), rows = convert(map.forward(x, context), DType::f32);
  if (spec_.unit) {
    const Tensor unit = scaled_heads(feature_map(FeatureMap::near_unit, rows, spec_.heads), factors_->value);
    return {random_features(spec_.map, unit, vectors, spec_.heads).features,
            Tensor::zeros({x.dim(0), spec_.heads}, DType::f32)};
  }
  const int64_t d = width_ / spec_.heads;
  const float scale = 1 / std::sqrt(std::sqrt(static_cast<float>(d)));
  if (spec_.epsilon > 0)
    return {
        raised_features(scaled(rows, scale), vectors, spec_.heads, spec_.epsilon,
                        keys ? std::span<const int32_t>(context.layout.offsets) : std::span<const int32_t>()),
        Tensor::zeros({x.dim(0), spec_.heads}, DType::f32)};
  return random_features(spec_.map, scaled(rows, scale), vectors, spec_.heads);
}

Tensor RandomFeatureAttention::forward(const Tensor& x, const Context& context) const {
  if (context.observed) seed_ = context.seed, step_ = context.step;
  const RandomFeatures q = features_of(q_, false, x, context), k = features_of(k_, true, x, context);
  Tensor sizes = k.log_scales, rows = join_columns(q.features, k.features);
  rows = join_columns(rows, convert(v_.forward(x, context), DType::f32));
  if (gate_) {
    const Tensor gate = convert(gate_->forward(x, context), DType::f32);
    sizes = add(sizes, log_sigmoid(scaled(gate, -1)));  // the logarithm of 1 - g is added
    rows = join_columns(join_columns(rows, sizes), log_sigmoid(gate));
  } else {
    rows = join_columns(rows, sizes);
  }
  return out_.forward(convert(read(rows, context), x.dtype()), context);
}

ReplayedMixer::Pass RandomFeatureAttention::pass(const Tensor& rows, const Tensor& first,
                                                 std::span<const int32_t> offsets,
                                                 std::span<const int32_t> marks) const {
  const int64_t heads = spec_.heads, numbers = heads * features(), sizes = 2 * numbers + width_;
  const RunningScale scale =
      running_scale(columns_of(rows, sizes, sizes + heads),
                    gate_ ? columns_of(rows, sizes + heads, sizes + 2 * heads) : Tensor(),
                    first.defined() ? columns_of(first, 0, heads) : Tensor(), offsets, marks);
  const FastWeightsResult r = fast_weights(
      {.heads = heads,
       .key_heads = heads,
       .q = columns_of(rows, 0, numbers),
       .k = scaled_heads(columns_of(rows, numbers, 2 * numbers), scale.factors),
       .v = columns_of(rows, 2 * numbers, sizes),
       .decay = scale.decays,
       .epsilon = 0.0F,
       .least_divisor = spec_.unit ? kLeastOfUnit / static_cast<float>(spec_.count) : kLeastDivisor,
       .divisors = !spec_.unit ? LeastDivisor::of_magnitude
                   : causal_   ? LeastDivisor::above
                               : LeastDivisor::absolute},
      first.defined() ? columns_of(first, heads, first.width()) : Tensor(), offsets, offsets, causal_, marks);
  return {r.y, join_columns(scale.state, r.state),
          marks.empty() ? Tensor() : join_columns(scale.marked, r.marked)};
}

void RandomFeatureAttention::update_buffers() const {
  const uint64_t step = step_;
  if (spec_.redraw == 0 || step == 0 || vectors_->frozen || step % static_cast<uint64_t>(spec_.redraw) != 0)
    return;
  const std::vector<float> drawn =
      random_vectors(spec_.count, vectors_->shape[1], spec_.orthogonal, {seed_, step, site_});
  std::ranges::copy(drawn, vectors_->value.mutable_values<float>().begin());
}

}  // namespace qkv

#include "qkv/nn/fast_weights.h"

#include <cmath>
#include <vector>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"

namespace qkv {
namespace {

constexpr float kEpsilon = 1e-6F;  // added to the divisor

FastWeightsInput input(const FastWeightsSpec& spec, int64_t width) {
  FastWeightsInput in;
  in.heads = in.key_heads = spec.heads;
  const int64_t d_head = width / spec.heads;
  if (spec.normalised)
    in.epsilon = kEpsilon;
  else
    in.scale = 1 / std::sqrt(static_cast<float>(d_head));
  return in;
}

}  // namespace

FastWeightsLayer::FastWeightsLayer(Parameters& parameters, const std::string& name,
                                   const FastWeightsSpec& spec, int64_t width, InitStd std)
    : spec_(spec),
      width_(width),
      q_(parameters, name + ".q", width, width, true, std.inner),
      k_(parameters, name + ".k", width, width, true, std.inner),
      v_(parameters, name + ".v", width, width, true, std.inner),
      out_(parameters, name + ".out", width, width, true, std.out) {
  if (spec.delta)
    beta_ = std::make_unique<Linear>(parameters, name + ".beta", width, spec.heads, true, std.inner);
}

Tensor FastWeightsLayer::forward(const Tensor& x, const Context& context) const {
  const std::vector<int32_t>& offsets = context.layout.offsets;
  FastWeightsInput in = input(spec_, width_);
  in.q = feature_map(spec_.features, q_.forward(x, context), spec_.heads);
  in.k = feature_map(spec_.features, k_.forward(x, context), spec_.heads);
  in.v = v_.forward(x, context);
  if (beta_) in.beta = activation(Activation::sigmoid, convert(beta_->forward(x, context), DType::f32));
  ReplayedState* memory = state(context);
  if (memory == nullptr) return out_.forward(fast_weights(in, {}, offsets, offsets, spec_.causal).y, context);
  const FastWeightsResult r =
      fast_weights(in, memory->last(), offsets, offsets, spec_.causal, memory->marks(offsets));
  Tensor rows = join_columns(convert(in.k, DType::f32), convert(in.v, DType::f32));
  if (beta_) rows = join_columns(rows, in.beta);
  memory->append(rows, r.marked, r.state, offsets);
  return out_.forward(r.y, context);
}

std::unique_ptr<ReplayedState> FastWeightsLayer::make_state(int64_t sequences) const {
  const int64_t heads = spec_.heads, d = width_ / heads, beta = beta_ ? heads : 0,
                numbers = width_ * (d + (spec_.normalised ? 1 : 0)), inputs = 2 * width_ + beta;
  const auto replay = [in = input(spec_, width_), width = width_, inputs, beta](const Tensor& from,
                                                                                const Tensor& rows) {
    const NoGrad guard;
    FastWeightsInput again = in;
    again.k = columns_of(rows, 0, width);
    again.v = columns_of(rows, width, 2 * width);
    if (beta > 0) again.beta = columns_of(rows, 2 * width, inputs);
    again.q = again.k;  // nothing reads y
    const std::vector<int32_t> offsets = {0, static_cast<int32_t>(rows.dim(0))};
    return fast_weights(again, from, offsets, offsets, true).state;
  };
  return std::make_unique<ReplayedState>(sequences, numbers, inputs, replay);
}

}  // namespace qkv

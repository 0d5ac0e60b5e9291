#include "qkv/nn/attention_free.h"

#include <limits>
#include <vector>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/experts.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/parts.h"
#include "qkv/ops/products.h"
#include "qkv/ops/wkv.h"

namespace qkv {
namespace {

Tensor filled(int64_t width, float x) {
  return Tensor::of({width}, std::vector<float>(static_cast<size_t>(width), x));
}

}  // namespace

AttentionFree::AttentionFree(Parameters& parameters, const std::string& name, const AftSpec& spec,
                             int64_t width, int64_t context, bool causal, InitStd std)
    : spec_(spec),
      width_(width),
      causal_(causal),
      q_(parameters, name + ".q", width, width, true, std.inner),
      k_(parameters, name + ".k", width, width, true, std.inner),
      v_(parameters, name + ".v", width, width, true, std.inner),
      out_(parameters, name + ".out", width, width, true, std.out) {
  const auto add = [&](const char* of, const Shape& shape) {
    return &parameters.add(name + of, shape, ParameterKind::vector,
                           {.kind = Initializer::Kind::normal, .std = std.inner});
  };
  if (spec.form == AftForm::conv) {
    positions_ = add(".positions", {spec.heads, causal ? spec.window : 2 * spec.window - 1});
  } else if (spec.form != AftForm::simple && spec.rank == 0) {
    positions_ = add(".positions", {context, context});
  } else if (spec.form != AftForm::simple) {
    positions_ = add(".positions", {context, spec.rank});
    key_positions_ = add(".key_positions", {context, spec.rank});
  }
}

PositionWeights AttentionFree::weights() const {
  if (spec_.form == AftForm::conv) return {.by_distance = positions_->value, .window = spec_.window};
  if (spec_.form == AftForm::simple) return {};
  const Tensor table =
      spec_.rank > 0 ? linear(positions_->value, key_positions_->value, {}, DType::f32) : positions_->value;
  return {.table = table, .window = spec_.form == AftForm::local ? spec_.window : 0};
}

Tensor AttentionFree::forward(const Tensor& x, const Context& context) const {
  Heads k{k_.forward(x, context), 0, 1, width_}, v{v_.forward(x, context), 0, 1, width_};
  const std::vector<int32_t>& offsets = context.layout.offsets;
  KeyLayout keys = KeyLayout::contiguous(offsets);
  if (KeyValueState* memory = state(context); memory != nullptr) {
    memory->append(k, v, offsets);
    k = memory->keys(), v = memory->values(), keys = memory->layout();
  }
  const Tensor y = attention_free(k.x, v.x, weights(), offsets, keys, causal_);
  return out_.forward(product(activation(Activation::sigmoid, q_.forward(x, context)), y), context);
}

std::unique_ptr<KeyValueState> AttentionFree::make_state(int64_t sequences) const {
  return std::make_unique<KeyValueState>(sequences, 1, width_, width_);
}

SimpleAttentionFree::SimpleAttentionFree(Parameters& parameters, const std::string& name, int64_t width,
                                         InitStd std)
    : width_(width),
      q_(parameters, name + ".q", width, width, true, std.inner),
      k_(parameters, name + ".k", width, width, true, std.inner),
      v_(parameters, name + ".v", width, width, true, std.inner),
      out_(parameters, name + ".out", width, width, true, std.out),
      log_rates_(filled(width, -std::numeric_limits<float>::infinity())),
      bonus_(filled(width, 0)) {}

Tensor SimpleAttentionFree::forward(const Tensor& x, const Context& context) const {
  const Tensor y = read(join_columns(k_.forward(x, context), v_.forward(x, context)), context);
  return out_.forward(product(activation(Activation::sigmoid, q_.forward(x, context)), y), context);
}

ReplayedMixer::Pass SimpleAttentionFree::pass(const Tensor& rows, const Tensor& first,
                                              std::span<const int32_t> offsets,
                                              std::span<const int32_t> marks) const {
  const WkvResult r =
      wkv({columns_of(rows, 0, width_), columns_of(rows, width_, 2 * width_), log_rates_, bonus_}, first,
          offsets, marks);
  return {r.y, r.state, r.marked};
}

}  // namespace qkv

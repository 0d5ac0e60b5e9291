#include "qkv/models/unembedding.h"

#include <cmath>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/rows.h"

namespace qkv {

std::vector<int32_t> predicted_rows(const Indices& targets) {
  std::vector<int32_t> rows;
  const auto wanted = targets.values();
  for (int64_t i = 0; i < std::ssize(wanted); ++i)
    if (wanted[i] != kIgnored) rows.push_back(static_cast<int32_t>(i));
  return rows;
}

Unembedding::Unembedding(Parameters& parameters, const ModelSpec& spec, Parameter& token) : spec_(spec) {
  const int64_t width = spec.head_width > 0        ? spec.head_width
                        : spec.embedding_width > 0 ? spec.embedding_width
                                                   : spec.output_width();
  if (spec.embedding_width > 0 && spec.head_width == 0)
    out_projection_ = std::make_unique<Linear>(parameters, "unembedding.projection", spec.output_width(),
                                               width, false, spec.init_std);
  if (spec.head_width > 0) {
    head_ = std::make_unique<Linear>(parameters, "head", spec.output_width(), width, spec.head_bias,
                                     spec.init_std);
    head_norm_ = std::make_unique<Norm>(parameters, "head.norm", width, spec.norm());
  }
  weight_ = spec.tied ? &token
                      : &parameters.add("unembedding.weight", {spec.vocab_size, width}, ParameterKind::matrix,
                                        {Initializer::Kind::normal, spec.init_std});
  weight_->any_type = !spec.embedding_unit;
  if (spec.unembedding_bias)
    bias_ = &parameters.add("unembedding.bias", {spec.vocab_size}, ParameterKind::vector,
                            {Initializer::Kind::zeros});
}

Weight Unembedding::weight() const {
  return spec_.embedding_unit ? Weight(unit_rows(weight_->value)) : weight_->weight();
}

Tensor Unembedding::projected(const Tensor& hidden) const {
  if (head_) return head_norm_->forward(activation(spec_.activation_of_head(), head_->forward(hidden)));
  const Tensor x = out_projection_ ? out_projection_->forward(hidden) : hidden;
  const float root = spec_.unembedding_scaled ? 1 / std::sqrt(static_cast<float>(spec_.width)) : 1;
  const float factor = root * spec_.logit_multiplier;
  return factor == 1 ? x : scaled(x, factor);
}

Tensor Unembedding::logits(const Tensor& hidden) const {
  const Tensor z = linear(projected(hidden), weight(), bias(), DType::f32);
  if (spec_.logit_cap == 0) return z;
  return scaled(activation(Activation::tanh, scaled(z, 1 / spec_.logit_cap)), spec_.logit_cap);
}

CrossEntropyResult Unembedding::loss(const Tensor& hidden, const Indices& targets, float scale,
                                     const LossTerms& terms) const {
  // If few tokens are predicted, only their rows meet the vocabulary.
  const std::vector<int32_t> rows = predicted_rows(targets);
  if (std::ssize(rows) * 2 > targets.count() || rows.empty())
    return unembed_cross_entropy(projected(hidden), weight(), bias(), targets, scale, terms, spec_.logit_cap);
  std::vector<int32_t> kept;
  for (const int32_t r : rows) kept.push_back(targets[r]);
  return unembed_cross_entropy(projected(select_rows(hidden, rows)), weight(), bias(), std::move(kept), scale,
                               terms, spec_.logit_cap);
}

}  // namespace qkv

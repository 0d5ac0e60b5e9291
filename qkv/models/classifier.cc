#include "qkv/models/classifier.h"

#include <vector>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

constexpr uint32_t kHeadSite = 3;  // random site of dropout (see transformer.cc)

}  // namespace

bool same_labels(const ModelSpec& a, const ModelSpec& b) {
  if (a.problem != b.problem) return false;
  return a.problem == Problem::regression ? a.labels.size() == b.labels.size() : a.labels == b.labels;
}

Pooler::Pooler(Parameters& parameters, const ModelSpec& spec) : spec_(spec) {
  if (spec.pooler)
    linear_ = std::make_unique<Linear>(parameters, "pooler", spec.output_width(), spec.width,
                                       spec.pooler_bias, spec.init_std);
  if (spec.pooler_norm) norm_ = std::make_unique<Norm>(parameters, "pooler.norm", spec.width, spec.norm());
}

Tensor Pooler::transformed(const Tensor& x) const {
  if (!spec_.pooler) return x;
  const Tensor y = activation(spec_.pooler_activation, linear_->forward(x));
  return norm_ ? norm_->forward(y) : y;
}

Tensor Pooler::pooled(const Tensor& hidden, const ModelInput& input) const {
  check(spec_.architecture != Architecture::encoder_decoder, "model: {} has no vector for a sequence",
        name_of(spec_.architecture));
  const std::vector<int32_t>& offsets = input.layout.offsets;
  const auto row_of_each = [&] {
    std::vector<int32_t> rows;
    for (size_t s = 0; s + 1 < offsets.size(); ++s)
      rows.push_back(spec_.pooling == Pooling::first ? offsets[s] : offsets[s + 1] - 1);
    return rows;
  };
  return transformed(spec_.pooling == Pooling::mean ? mean_of_sequences(hidden, offsets)
                                                    : select_rows(hidden, row_of_each()));
}

Classifier::Classifier(Parameters& parameters, const ModelSpec& spec, const Pooler& pooler)
    : spec_(spec),
      pooler_(pooler),
      weight_(&parameters.add("classifier.weight", {spec.classes(), spec.pooled_width()},
                              ParameterKind::matrix, {Initializer::Kind::normal, spec.init_std})) {
  if (spec.classifier_bias)
    bias_ = &parameters.add("classifier.bias", {spec.classes()}, ParameterKind::vector,
                            {Initializer::Kind::zeros});
  if (spec.features.distilled)
    distilled_ = std::make_unique<Linear>(parameters, "classifier.distilled", spec.output_width(),
                                          spec.classes(), true, spec.init_std);
}

Tensor Classifier::features(const Tensor& hidden, const ModelInput& input, const Context& context) const {
  const bool of_sequence = spec_.output == Output::sequence_classes || spec_.output == Output::tokens;
  const Tensor x = of_sequence ? pooler_.pooled(hidden, input) : pooler_.transformed(hidden);
  return dropout(x, context.dropout(spec_.head_dropout, kHeadSite));
}

Tensor Classifier::classes(const Tensor& hidden, const ModelInput& input, const Context& context) const {
  if (distilled_) {
    const auto [first, second] = distilled_classes(hidden, input);
    return scaled(add(first, second), 0.5F);
  }
  return linear(features(hidden, input, context), weight_->value, bias(), DType::f32);
}

std::pair<Tensor, Tensor> Classifier::distilled_classes(const Tensor& hidden, const ModelInput& input) const {
  check(distilled_ != nullptr, "model: it has no distillation token");
  std::vector<int32_t> second(input.layout.offsets.begin(), input.layout.offsets.end() - 1);
  for (int32_t& row : second) ++row;
  const Tensor rows = select_rows(hidden, second);
  return {linear(pooler_.pooled(hidden, input), weight_->value, bias(), DType::f32),
          convert(distilled_->forward(rows), DType::f32)};
}

CrossEntropyResult Classifier::loss(const Tensor& hidden, const ModelInput& input, const Indices& targets,
                                    const Context& context, float scale, const LossTerms& terms) const {
  return unembed_cross_entropy(features(hidden, input, context), weight_->value, bias(), targets, scale,
                               terms);
}

Tensor Classifier::scores(const Tensor& hidden, const ModelInput& input, const Context& context) const {
  return linear(features(hidden, input, context), weight_->value, bias());
}

}  // namespace qkv

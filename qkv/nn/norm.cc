#include "qkv/nn/norm.h"

#include "qkv/ops/batch_norm.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/squash.h"

namespace qkv {

Norm::Norm(Parameters& parameters, const std::string& name, int64_t width, const NormSpec& spec)
    : spec_(spec), width_(width) {
  using enum Normalization;
  const bool plus_one = spec.kind == rms_plus_one || spec.kind == layer_plus_one,
             shifts = spec.kind == layer || spec.kind == layer_plus_one || spec.kind == batch;
  const auto add = [&](const char* of, int64_t count, Initializer::Kind start) {
    return &parameters.add(fmt::format("{}.{}", name, of), {count}, ParameterKind::vector, {start});
  };
  if (spec.kind != layer_plain && spec.kind != capsule)
    gamma_ = add("gamma", spec.kind == scale ? 1 : width,
                 plus_one ? Initializer::Kind::zeros : Initializer::Kind::ones);
  if (shifts) beta_ = add("beta", width, Initializer::Kind::zeros);
  if (spec.kind == batch) {
    mean_ = add("mean", width, Initializer::Kind::zeros);
    variance_ = add("variance", width, Initializer::Kind::ones);
    mean_->learned = variance_->learned = false;
    mean_->averaged = variance_->averaged = true;
  }
  if (spec.kind == layer_plain || plus_one) ones_ = Tensor::of({width}, std::vector<float>(width, 1.0F));
  if (spec.kind == layer_plain || spec.kind == layer_scale) zeros_ = Tensor::zeros({width}, DType::f32);
}

Tensor Norm::gamma() const {
  if (gamma_ == nullptr) return ones_;
  if (spec_.kind == Normalization::scale) return repeated(gamma_->value, width_);
  return ones_.defined() ? add(gamma_->value, ones_) : gamma_->value;
}

ResidualNormResult Norm::add_and_norm(const Tensor& x, const Tensor& branch, const Dropout& dropout,
                                      const Context& context) const {
  const bool of_rows = spec_.kind != Normalization::capsule && spec_.kind != Normalization::batch;
  if (of_rows)
    return residual_norm(x, branch, dropout, gamma(), beta_ ? beta_->value : zeros_, spec_.epsilon);
  const Tensor sum = branch.defined() ? add(x, qkv::dropout(branch, dropout)) : x;
  return {sum, spec_.kind == Normalization::capsule ? squash(sum, spec_.epsilon) : of_batch(sum, context)};
}

Tensor Norm::of_batch(const Tensor& x, const Context& context) const {
  constexpr float kMomentum = 0.1F;  // momentum of the running averages, the usual one
  if (!context.training || x.rows() == 0)
    return batch_norm(x, {mean_->value.detach(), variance_->value.detach()}, false, gamma_->value,
                      beta_->value, spec_.epsilon);
  const ColumnStatistics now = column_statistics(x);
  // Once per pass: with recomputation blocks run twice, and the first run records nothing.
  if (context.observed && recording() && !mean_->frozen && !variance_->frozen)
    for (const auto& [running, seen] : {std::pair{mean_, &now.mean}, std::pair{variance_, &now.variance}}) {
      const auto to = running->value.mutable_values<float>().first(width_);
      const auto from = seen->values<float>().first(width_);
      for (int64_t c = 0; c < width_; ++c) to[c] += kMomentum * (from[c] - to[c]);
    }
  return batch_norm(x, now, true, gamma_->value, beta_->value, spec_.epsilon);
}

}  // namespace qkv

#include "qkv/trace/tuned_lens.h"

#include <fmt/format.h>

#include <cmath>

#include "qkv/io/container/safetensors.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/rows.h"
#include "qkv/trace/lens.h"

namespace qkv {
namespace {

// The gradient with respect to `logits` of the mean over rows of KL(p | softmax(logits)), and that mean.
double divergence_of(const Tensor& target, const Tensor& logits, Tensor& gradient) {
  double total = 0;
  const auto softmax = [](Span<const float> row, std::vector<double>& p) {
    double top = -INFINITY, sum = 0;
    for (const float z : row) top = std::max(top, double{z});
    for (size_t v = 0; v < row.size(); ++v) sum += p[v] = std::exp(row[v] - top);
    for (double& x : p) x /= sum;
    return top + std::log(sum);
  };
  const auto rows = static_cast<double>(logits.rows());
  std::vector<double> p(static_cast<size_t>(logits.width())), q = p;
  for (int64_t r = 0; r < logits.rows(); ++r) {
    const auto a = target.row<float>(r), b = logits.row<float>(r);
    const double of_a = softmax(a, p), of_b = softmax(b, q);
    const auto to = gradient.mutable_row<float>(r);
    for (size_t v = 0; v < p.size(); ++v) {
      total += p[v] * ((a[v] - of_a) - (b[v] - of_b)) / rows;
      to[v] = static_cast<float>((q[v] - p[v]) / rows);
    }
  }
  return total;
}

}  // namespace

TunedLens::TunedLens(const ModelSpec& spec) {
  check(has_lens(spec), "the tuned lens needs a model of tokens whose blocks add to one stream");
  for (int64_t l = 0; l < spec.layers; ++l)
    maps_.emplace_back(
        &parameters_.add(fmt::format("lens.{}.weight", l), {spec.width, spec.width}, ParameterKind::matrix,
                         {}),
        &parameters_.add(fmt::format("lens.{}.bias", l), {spec.width}, ParameterKind::vector, {}));
  parameters_.prepare_training(DType::f32, 0);
}

Tensor TunedLens::mapped(size_t l, const Tensor& x) const {
  if (l >= maps_.size()) return x;
  return add(x, linear(x, maps_[l].first->value, maps_[l].second->value));
}

std::vector<Tensor> TunedLens::logits(const Transformer& model, const ModelInput& input) const {
  const NoGrad guard;
  const LayerRows layers = rows_by_layer(model, input);
  std::vector<Tensor> out;
  for (size_t l = 0; l < layers.rows.size(); ++l)
    out.push_back(model.logits(model.last_norm(convert(mapped(l, layers.rows[l]), layers.type))));
  return out;
}

double TunedLens::sum_of(const Transformer& model, const ModelInput& input, int64_t rows,
                         const Answered& answered) const {
  const LayerRows layers = rows_by_layer(model, input);
  const int64_t all = layers.rows[0].rows(), chosen = std::min(rows, all);
  check(chosen > 0, "the tuned lens: expected a pass with rows, and some of them");
  std::vector<int32_t> which;
  for (int64_t i = 0; i < chosen; ++i) which.push_back(static_cast<int32_t>(i * all / chosen));
  const auto answers = [&](const Tensor& x) {
    return model.logits(model.last_norm(convert(x, layers.type)));
  };
  Tensor target;
  {
    const NoGrad guard;
    target = answers(select_rows(layers.rows.back(), which));
  }
  double sum = 0;
  for (size_t l = 0; l < maps_.size(); ++l) {
    const Tensor logits = answers(mapped(l, select_rows(layers.rows[l], which)));
    Tensor gradient = Tensor::empty(logits.shape(), DType::f32);
    sum += divergence_of(target, logits, gradient) / static_cast<double>(maps_.size());
    if (answered) answered(logits, gradient);
  }
  return sum;
}

double TunedLens::divergence(const Transformer& model, const ModelInput& input, int64_t rows) const {
  const NoGrad guard;
  return sum_of(model, input, rows, nullptr);
}

double TunedLens::fit(const Transformer& model, const ModelInput& input, int64_t rows, double learning_rate) {
  if (!optimizer_) {
    OptimizerConfig adam;
    adam.name = "adam";
    adam.weight_decay = 0;
    adam.beta2 = 0.999;
    optimizer_ = make_optimizer(adam, parameters_);
  }
  parameters_.reset_gradients();
  const double sum = sum_of(model, input, rows, [](const Tensor& logits, const Tensor& gradient) {
    const Seed seed{logits, gradient};
    backward(std::span(&seed, 1));
  });
  parameters_.complete_gradients();
  optimizer_->update(parameters_, ++steps_, learning_rate, 1);
  return sum;
}

void TunedLens::save(const std::string& path) const {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const Parameter& p : parameters_.all()) tensors.emplace_back(p.name, p.master);
  write_safetensors(path, tensors);
}

void TunedLens::load(const std::string& path) {
  const TensorFile file = read_safetensors(path);
  for (Parameter& p : parameters_.all()) {
    const auto found = file.tensors.find(p.name);
    check(found != file.tensors.end(), "{}: it has no {}: it is no lens of this model", path, p.name);
    check(found->second.shape() == p.shape && found->second.dtype() == DType::f32,
          "{}: {}: expected f32 {}, got {} {}", path, p.name, p.shape, name_of(found->second.dtype()),
          found->second.shape());
    for (const float x : found->second.values<float>())
      check(std::isfinite(x), "{}: {}: a number is not finite", path, p.name);
    p.master.copy(found->second);
  }
  check(file.tensors.size() == parameters_.all().size(), "{}: it has tensors of no map of this model", path);
}

}  // namespace qkv

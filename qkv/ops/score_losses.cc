#include "qkv/ops/score_losses.h"

#include <algorithm>
#include <cmath>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

class ScoreLossNode : public Node {
 public:
  ScoreLossNode(const Tensor& scores, Tensor gradient) : gradient_(std::move(gradient)) { add_input(scores); }
  std::string_view name() const override { return "score_loss"; }
  void backward(std::span<Tensor> grads) override {
    const float dy = grads[0].item();
    for (float& g : gradient_.mutable_values<float>()) g *= dy;
    give(0, std::move(gradient_));
  }

 private:
  Tensor gradient_;  // the loss's, with respect to the scores
};

struct Term {
  double loss, slope;
};

// The mean over columns of f(score, target).
template <typename F>
ScoreLoss mean_over_columns(const char* op, const Tensor& scores, const Tensor& targets, float scale,
                            const F& f) {
  check(scores.defined() && scores.shape().rank() == 2 && scores.width() > 0, "{}: scores: expected [S, C]",
        op);
  expect_dtype(op, "scores", scores, DType::f32);
  expect_shape(op, "targets", targets, scores.shape());
  expect_dtype(op, "targets", targets, DType::f32);
  const auto z = scores.values<float>(), t = targets.values<float>();
  Tensor gradient = Tensor::zeros(scores.shape(), DType::f32);
  const auto dz = gradient.mutable_values<float>();
  const double share = 1 / static_cast<double>(scores.width());
  ScoreLoss result;
  result.count = scores.rows();
  for (size_t i = 0; i < z.size(); ++i) {
    const Term term = f(double{z[i]}, double{t[i]});
    result.total += share * term.loss;
    dz[i] = static_cast<float>(double{scale} * share * term.slope);
  }
  const auto loss = static_cast<float>(result.total * scale);
  result.loss = Tensor::of({1}, std::span(&loss, 1));
  if (wants_grad({&scores}))
    connect(result.loss, std::make_shared<ScoreLossNode>(scores, std::move(gradient)));
  return result;
}

}  // namespace

ScoreLoss binary_cross_entropy(const Tensor& scores, const Tensor& targets, float scale) {
  constexpr const char* kOp = "binary_cross_entropy";
  if (targets.defined())
    for (const float t : targets.values<float>())
      check(t >= 0 && t <= 1, "{}: targets: expected numbers from 0 to 1, got {}", kOp, t);
  return mean_over_columns(kOp, scores, targets, scale, [](double z, double t) {
    const double probability = 1 / (1 + std::exp(-z));
    return Term{std::max(z, 0.0) - t * z + std::log1p(std::exp(-std::abs(z))), probability - t};
  });
}

ScoreLoss squared_error(const Tensor& scores, const Tensor& targets, float scale) {
  return mean_over_columns("squared_error", scores, targets, scale, [](double z, double t) {
    return Term{(z - t) * (z - t), 2 * (z - t)};
  });
}

}  // namespace qkv

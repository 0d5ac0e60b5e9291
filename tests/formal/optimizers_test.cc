// Every optimizer of the engine against its printed formula, over steps with changing gradients and rates.
// Covers: qkv/optim/adafactor.cc
#include "formal/optimizers.h"

#include <gtest/gtest.h>

#include <random>

#include "qkv/optim/optimizer.h"

namespace qkv::optimizers_test {
namespace {

constexpr int64_t kRows = 65, kColumns = 17, kBias = 33;
constexpr int kSteps = 12;
constexpr double kScale = 0.7;  // clipping

using formal::Array;
using formal::Matrix;
using formal::Vector;

Array wide(const Tensor& x) {
  Array out(x.count());
  for (int64_t i = 0; i < x.count(); ++i) out(i) = double{x.data<float>()[i]};
  return out;
}
Matrix<double> wide_matrix(const Tensor& x) {  // row-major, or a column
  const bool vector = x.shape().rank() == 1;
  Matrix<double> out(x.dim(0), vector ? 1 : x.dim(1));
  for (int64_t i = 0; i < x.count(); ++i) out(i / out.cols(), i % out.cols()) = double{x.data<float>()[i]};
  return out;
}

// Trains a matrix and a vector with the engine's rule and with `formal_step(parameter index, theta, g, t,
// eta)`.
template <typename Theta, typename Step>
void expect_equal(const OptimizerConfig& config, const Theta& theta_of, const Step& formal_step,
                  double tolerance) {
  Parameters parameters;
  parameters.add("w", {kRows, kColumns}, ParameterKind::matrix, {Initializer::Kind::normal, 1});
  parameters.add("b", {kBias}, ParameterKind::vector, {Initializer::Kind::normal, 1});
  parameters.prepare_training(DType::bf16, 1);
  const auto optimizer = make_optimizer(config, parameters);
  std::vector<decltype(theta_of(Tensor()))> theta;
  for (const Parameter& p : parameters.all()) theta.push_back(theta_of(p.master));
  std::mt19937_64 rng(7);
  std::normal_distribution<float> normal;
  for (int t = 1; t <= kSteps; ++t) {
    const double eta = 0.02 / std::sqrt(t);
    for (size_t k = 0; k < theta.size(); ++k) {
      Parameter& p = parameters.all()[k];
      float* g = p.leaf->grad.mutable_data<float>();
      for (int64_t i = 0; i < p.shape.count(); ++i) g[i] = normal(rng);
      auto scaled = theta_of(p.leaf->grad);
      scaled *= kScale;
      theta[k] = formal_step(k, theta[k], scaled, t, eta);
    }
    optimizer->update(parameters, t, eta, kScale);
  }
  for (size_t k = 0; k < theta.size(); ++k) {
    auto difference = theta_of(parameters.all()[k].master);
    difference -= theta[k];
    EXPECT_LT(difference.matrix().cwiseAbs().maxCoeff(), tolerance) << config.name << ", parameter " << k;
    const auto& value = parameters.all()[k].value;
    if (value.dtype() == DType::bf16) {
      for (int64_t i = 0; i < value.count(); ++i)
        ASSERT_EQ(value.data<BFloat16>()[i].bits, BFloat16(parameters.all()[k].master.data<float>()[i]).bits);
    }
  }
}

// Weights of about 1 to 4 round by 2.4e-7 a step; moments' rounding moves a step of at most eta by some 1e-6
// of it.
constexpr double kTolerance = 1e-5;
constexpr double kDecay = 0.3;

struct Memory {
  Array m[2] = {Array::Zero(kRows * kColumns), Array::Zero(kBias)};
  Array v[2] = {Array::Zero(kRows * kColumns), Array::Zero(kBias)};
};

TEST(OptimizersAgainstFormal, Sgd) {
  OptimizerConfig c{.name = "sgd", .weight_decay = kDecay};
  expect_equal(
      c, wide,
      [&](size_t k, const Array& theta, const Array& g, int, double eta) {
        const double lambda = k == 0 ? kDecay : 0;  // vectors are exempt
        return formal::SGD(theta, g + lambda * theta, eta);
      },
      kTolerance);
}

TEST(OptimizersAgainstFormal, MomentumAndNesterov) {
  for (const bool nesterov : {false, true}) {
    Memory s;
    OptimizerConfig c{.name = "sgd", .weight_decay = kDecay, .momentum = 0.9, .nesterov = nesterov};
    expect_equal(
        c, wide,
        [&](size_t k, const Array& theta, const Array& g, int, double eta) {
          const Array with_decay = g + (k == 0 ? kDecay : 0) * theta;
          return nesterov ? formal::Nesterov(theta, with_decay, s.m[k], eta, 0.9)
                          : formal::Momentum(theta, with_decay, s.m[k], eta, 0.9);
        },
        kTolerance);
  }
}

TEST(OptimizersAgainstFormal, AdaGradAndRmsProp) {
  for (const bool adagrad : {true, false}) {
    Memory s;
    OptimizerConfig c{
        .name = adagrad ? "adagrad" : "rmsprop", .weight_decay = kDecay, .beta2 = 0.95, .epsilon = 1e-6};
    expect_equal(
        c, wide,
        [&](size_t k, const Array& theta, const Array& g, int, double eta) {
          const Array with_decay = g + (k == 0 ? kDecay : 0) * theta;
          return adagrad ? formal::AdaGrad(theta, with_decay, s.v[k], eta, 1e-6)
                         : formal::RMSProp(theta, with_decay, s.v[k], eta, 0.95, 1e-6);
        },
        kTolerance);
  }
}

TEST(OptimizersAgainstFormal, AdamAndAdamW) {
  for (const bool decoupled : {true, false}) {
    Memory s;
    OptimizerConfig c{
        .name = decoupled ? "adamw" : "adam", .weight_decay = kDecay, .beta1 = 0.8, .beta2 = 0.95};
    expect_equal(
        c, wide,
        [&](size_t k, const Array& theta, const Array& g, int t, double eta) {
          const double lambda = k == 0 ? kDecay : 0;
          const Array with_decay = decoupled ? g : Array(g + lambda * theta);
          return formal::Adam(theta, with_decay, s.m[k], s.v[k], t, eta, 0.8, 0.95, 1e-8,
                              decoupled ? lambda : 0);
        },
        kTolerance);
  }
}

TEST(OptimizersAgainstFormal, Lion) {
  Memory s;
  OptimizerConfig c{.name = "lion", .weight_decay = kDecay, .beta1 = 0.9, .beta2 = 0.99};
  expect_equal(
      c, wide,
      [&](size_t k, const Array& theta, const Array& g, int, double eta) {
        return formal::Lion(theta, g, s.m[k], eta, 0.9, 0.99, k == 0 ? kDecay : 0);
      },
      kTolerance);
}

TEST(OptimizersAgainstFormal, Adafactor) {
  Vector<double> r[2] = {Vector<double>::Zero(kRows), Vector<double>()};
  Vector<double> v[2] = {Vector<double>::Zero(kColumns), Vector<double>::Zero(kBias)};
  OptimizerConfig c{.name = "adafactor", .weight_decay = kDecay};
  expect_equal(
      c, wide_matrix,
      [&](size_t k, const Matrix<double>& theta, const Matrix<double>& g, int t, double eta) {
        return formal::Adafactor(theta, g, r[k], v[k], t, eta, k == 0 ? kDecay : 0);
      },
      kTolerance);
}

}  // namespace
}  // namespace qkv::optimizers_test

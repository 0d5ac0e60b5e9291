#include "qkv/train/optimizer.h"

#include <cmath>
#include <numbers>

#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

constexpr ParameterKind kKinds[] = {ParameterKind::matrix, ParameterKind::vector};
constexpr const char* kKindNames[] = {"matrix", "vector"};
constexpr int64_t kGrain = 1 << 15;

BFloat16* shadow_of(Arena& a) {
  return a.shadow.defined() ? a.shadow.mutable_data<BFloat16>() : nullptr;
}

class AdamWRule : public Optimizer {
 public:
  AdamWRule(const OptimizerConfig& config, Parameters& parameters) : config_(config) {
    for (int k = 0; k < 2; ++k) {
      const int64_t size = parameters.arena(kKinds[k]).master.count();
      m_[k] = Tensor::zeros({size}, DType::f32);
      v_[k] = Tensor::zeros({size}, DType::f32);
    }
  }

  void update(Parameters& parameters, int64_t step, double learning_rate, double gradient_scale) override {
    AdamW rule{};
    rule.lr = static_cast<float>(learning_rate);
    rule.beta1 = static_cast<float>(config_.beta1);
    rule.beta2 = static_cast<float>(config_.beta2);
    rule.epsilon = static_cast<float>(config_.epsilon);
    rule.bias1 = static_cast<float>(1 - std::pow(config_.beta1, static_cast<double>(step)));
    rule.bias2 = static_cast<float>(1 - std::pow(config_.beta2, static_cast<double>(step)));
    rule.grad_scale = static_cast<float>(gradient_scale);
    for (int k = 0; k < 2; ++k) {
      Arena& a = parameters.arena(kKinds[k]);
      rule.weight_decay = kKinds[k] == ParameterKind::matrix ? static_cast<float>(config_.weight_decay) : 0;
      float *w = a.master.mutable_data<float>(), *m = m_[k].mutable_data<float>(),
            *v = v_[k].mutable_data<float>();
      const float* g = a.gradient.data<float>();
      BFloat16* shadow = shadow_of(a);
      parallel_for(a.master.count(), kGrain, [&](int64_t i, int64_t end) {
        kernels().adamw(rule, end - i, w + i, g + i, m + i, v + i, shadow ? shadow + i : nullptr);
      });
    }
  }

  std::vector<std::pair<std::string, Tensor>> state() override {
    std::vector<std::pair<std::string, Tensor>> out;
    for (int k = 0; k < 2; ++k) {
      out.emplace_back(std::string(kKindNames[k]) + ".m", m_[k]);
      out.emplace_back(std::string(kKindNames[k]) + ".v", v_[k]);
    }
    return out;
  }

 private:
  OptimizerConfig config_;
  Tensor m_[2], v_[2];
};

class SgdRule : public Optimizer {
 public:
  void update(Parameters& parameters, int64_t, double learning_rate, double gradient_scale) override {
    for (const ParameterKind kind : kKinds) {
      Arena& a = parameters.arena(kind);
      float* w = a.master.mutable_data<float>();
      const float* g = a.gradient.data<float>();
      BFloat16* shadow = shadow_of(a);
      parallel_for(a.master.count(), kGrain, [&](int64_t i, int64_t end) {
        kernels().sgd(static_cast<float>(learning_rate), static_cast<float>(gradient_scale), end - i, w + i,
                      g + i, shadow ? shadow + i : nullptr);
      });
    }
  }
  std::vector<std::pair<std::string, Tensor>> state() override { return {}; }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, Parameters& parameters) {
  if (config.name == "sgd") return std::make_unique<SgdRule>();
  check(config.name == "adamw", "optimizer: expected adamw or sgd, got '{}'", config.name);
  return std::make_unique<AdamWRule>(config, parameters);
}

double learning_rate_at(const OptimizerConfig& c, int64_t step, int64_t steps) {
  if (step <= c.warmup_steps)
    return c.learning_rate * static_cast<double>(step) / static_cast<double>(c.warmup_steps);
  if (c.schedule == "constant" || steps <= c.warmup_steps) return c.learning_rate;
  const double done =
      static_cast<double>(step - c.warmup_steps) / static_cast<double>(steps - c.warmup_steps);
  return c.min_learning_rate + 0.5 * (c.learning_rate - c.min_learning_rate) *
                                   (1 + std::cos(std::numbers::pi * std::min(1.0, done)));
}

double gradient_norm(Parameters& parameters) {
  constexpr int64_t kBlock = 1 << 16;
  double total = 0;
  for (const ParameterKind kind : kKinds) {
    const Tensor& g = parameters.arena(kind).gradient;
    const int64_t blocks = (g.count() + kBlock - 1) / kBlock;
    std::vector<double> sums(blocks);
    parallel_for(blocks, 1, [&](int64_t b, int64_t end) {
      for (; b < end; ++b)
        sums[b] =
            kernels().sum_squares(std::min(kBlock, g.count() - b * kBlock), g.data<float>() + b * kBlock);
    });
    for (const double s : sums) total += s;
  }
  return std::sqrt(total);
}

}  // namespace qkv

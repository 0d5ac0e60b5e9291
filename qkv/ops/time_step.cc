#include "qkv/ops/time_step.h"

#include <algorithm>
#include <cmath>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/softplus.h"

namespace qkv {
namespace {

class TimeStepsNode : public Node {
 public:
  TimeStepsNode(const Tensor& x, const Tensor& bias, float low, float high) : low_(low), high_(high) {
    add_input(x);
    add_input(bias);
    x_ = x.detach();
    bias_ = bias.detach();
  }
  std::string_view name() const override { return "time_steps"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t width = x_.width();
    Tensor dx = Tensor::empty(x_.shape(), DType::f32);
    with_float_type("time_steps", x_.dtype(), [&]<typename T>(T) {
      const T* x = x_.data<T>();
      const float *bias = bias_.data<float>(), *dy = grads[0].data<float>();
      float* to = dx.mutable_data<float>();
      parallel_for(x_.dim(0), row_grain(kFunctionCost * width), [&](int64_t r, int64_t end) {
        for (int64_t i = r * width; i < end * width; ++i) {
          const float z = static_cast<float>(x[i]) + bias[i % width], y = softplus(z);
          to[i] = y > low_ && y < high_ ? dy[i] * sigmoid(z) : 0;
        }
      });
    });
    if (wants(1))
      weight_grad(1, {width}, [&](Tensor& target, bool accumulate) {
        float* to = target.mutable_data<float>();
        if (!accumulate) std::fill_n(to, width, 0.0F);
        const float* from = dx.data<float>();
        for (int64_t r = 0; r < dx.dim(0); ++r)
          for (int64_t c = 0; c < width; ++c) to[c] += from[r * width + c];
      });
    if (!wants(0)) return;
    if (x_.dtype() == DType::f32) return give(0, std::move(dx));
    Tensor narrow = Tensor::empty(x_.shape(), x_.dtype());
    const float* from = dx.data<float>();
    auto* to = narrow.mutable_data<BFloat16>();
    for (int64_t i = 0; i < dx.count(); ++i) to[i] = BFloat16(from[i]);
    give(0, std::move(narrow));
  }

 private:
  float low_, high_;
  Tensor x_, bias_;
};

class LogDecaysNode : public Node {
 public:
  LogDecaysNode(const Tensor& steps, const Tensor& log_rates) {
    add_input(steps);
    add_input(log_rates);
    steps_ = steps.detach();
    log_rates_ = log_rates.detach();
  }
  std::string_view name() const override { return "log_decays"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t width = steps_.width(), rows = steps_.dim(0);
    const float *dy = grads[0].data<float>(), *step = steps_.data<float>(), *log = log_rates_.data<float>();
    if (wants(0)) {
      Tensor dx = Tensor::empty(steps_.shape(), DType::f32);
      for (int64_t i = 0; i < rows * width; ++i)
        dx.mutable_data<float>()[i] = -std::exp(log[i % width]) * dy[i];
      give(0, std::move(dx));
    }
    if (!wants(1)) return;
    weight_grad(1, {width}, [&](Tensor& target, bool accumulate) {
      float* to = target.mutable_data<float>();
      if (!accumulate) std::fill_n(to, width, 0.0F);
      for (int64_t i = 0; i < rows * width; ++i) to[i % width] -= std::exp(log[i % width]) * step[i] * dy[i];
    });
  }

 private:
  Tensor steps_, log_rates_;
};

}  // namespace

Tensor time_steps(const Tensor& x, const Tensor& bias, float low, float high) {
  check(x.defined() && x.shape().rank() == 2, "time_steps: expected x [N, H], got {}", x);
  expect_shape("time_steps", "bias", bias, {x.width()});
  expect_dtype("time_steps", "bias", bias, DType::f32);
  check(low >= 0 && low < high, "time_steps: expected 0 <= low < high, got {} and {}", low, high);
  Tensor out = Tensor::empty(x.shape(), DType::f32);
  const int64_t width = x.width();
  with_float_type("time_steps", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    const float* add = bias.data<float>();
    float* to = out.mutable_data<float>();
    parallel_for(x.dim(0), row_grain(kFunctionCost * width), [&](int64_t r, int64_t end) {
      for (int64_t i = r * width; i < end * width; ++i)
        to[i] = std::clamp(softplus(static_cast<float>(from[i]) + add[i % width]), low, high);
    });
  });
  if (wants_grad({&x, &bias})) connect(out, std::make_shared<TimeStepsNode>(x, bias, low, high));
  return out;
}

Tensor log_decays(const Tensor& steps, const Tensor& log_rates) {
  check(steps.defined() && steps.shape().rank() == 2, "log_decays: expected steps [N, H], got {}", steps);
  expect_shape("log_decays", "log_rates", log_rates, {steps.width()});
  for (const Tensor* x : {&steps, &log_rates}) expect_dtype("log_decays", "inputs", *x, DType::f32);
  Tensor out = Tensor::empty(steps.shape(), DType::f32);
  const float *from = steps.data<float>(), *log = log_rates.data<float>();
  for (int64_t i = 0; i < out.count(); ++i)
    out.mutable_data<float>()[i] = -std::exp(log[i % steps.width()]) * from[i];
  if (wants_grad({&steps, &log_rates})) connect(out, std::make_shared<LogDecaysNode>(steps, log_rates));
  return out;
}

}  // namespace qkv

#include "qkv/ops/feature_map.h"

#include <algorithm>
#include <cmath>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

constexpr float kEpsilon = 1e-6F;

float elu_plus_one(float x) {
  return x > 0 ? x + 1 : std::exp(x);
}
float elu_slope(float x) {
  return x > 0 ? 1 : std::exp(x);
}

// The divisor of a head.
template <typename T>
float divisor(FeatureMap kind, const T* x, int64_t n) {
  float sum = kind == FeatureMap::unit ? kEpsilon : 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<float>(x[i]);
    sum += kind == FeatureMap::unit ? v * v : elu_plus_one(v);
  }
  return kind == FeatureMap::unit ? std::sqrt(sum) : sum;
}

template <typename T>
void map_head(FeatureMap kind, const T* x, T* y, int64_t n) {
  const bool divides = kind == FeatureMap::shares || kind == FeatureMap::unit;
  const float by = divides ? 1 / divisor(kind, x, n) : 1;
  for (int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<float>(x[i]);
    switch (kind) {
      case FeatureMap::elu:
      case FeatureMap::shares:
        y[i] = T(elu_plus_one(v) * by);
        break;
      case FeatureMap::relu:
        y[i] = T(std::max(v, 0.0F));
        break;
      default:
        y[i] = T(v * by);
    }
  }
}

// With y = f(x) / d: dx = f'(x) (dy - y . dy) / d for shares; (dy - y (y . dy)) / d for unit.
template <typename T>
void map_head_grad(FeatureMap kind, const T* x, const T* dy, T* dx, int64_t n) {
  if (kind == FeatureMap::elu || kind == FeatureMap::relu) {
    for (int64_t i = 0; i < n; ++i) {
      const auto v = static_cast<float>(x[i]);
      const float slope = kind == FeatureMap::elu ? elu_slope(v) : v > 0 ? 1 : 0;
      dx[i] = T(slope * static_cast<float>(dy[i]));
    }
    return;
  }
  const float by = 1 / divisor(kind, x, n);
  const auto at = [&](int64_t i) {
    const auto v = static_cast<float>(x[i]);
    return (kind == FeatureMap::unit ? v : elu_plus_one(v)) * by;
  };
  float dot = 0;
  for (int64_t i = 0; i < n; ++i) dot += at(i) * static_cast<float>(dy[i]);
  for (int64_t i = 0; i < n; ++i) {
    const auto g = static_cast<float>(dy[i]);
    dx[i] = T(kind == FeatureMap::unit ? (g - at(i) * dot) * by
                                       : (g - dot) * by * elu_slope(static_cast<float>(x[i])));
  }
}

class FeatureMapNode : public Node {
 public:
  FeatureMapNode(FeatureMap kind, const Tensor& x, int64_t heads) : kind_(kind), heads_(heads) {
    add_input(x);
    x_ = x.detach();
  }
  std::string_view name() const override { return "feature_map"; }
  void backward(std::span<Tensor> grads) override {
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    const int64_t width = x_.width() / heads_;
    with_float_type("feature_map", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = grads[0].data<T>();
      T* to = dx.mutable_data<T>();
      parallel_for(x_.rows() * heads_, row_grain(kFunctionCost * width), [&](int64_t h, int64_t end) {
        for (; h < end; ++h) map_head_grad(kind_, x + h * width, dy + h * width, to + h * width, width);
      });
    });
    give(0, std::move(dx));
  }

 private:
  FeatureMap kind_;
  Tensor x_;
  int64_t heads_;
};

}  // namespace

Tensor feature_map(FeatureMap kind, const Tensor& x, int64_t heads) {
  check(x.defined() && x.shape().rank() == 2 && heads > 0 && x.width() > 0 && x.width() % heads == 0,
        "feature_map: {} heads do not fit x {}", heads, x);
  if (kind == FeatureMap::identity) return x;
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const int64_t width = x.width() / heads;
  with_float_type("feature_map", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.rows() * heads, row_grain(kFunctionCost * width), [&](int64_t h, int64_t end) {
      for (; h < end; ++h) map_head(kind, from + h * width, to + h * width, width);
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<FeatureMapNode>(kind, x, heads));
  return out;
}

}  // namespace qkv

#include "qkv/ops/feature_map.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

constexpr float kEpsilon = 1e-6F, kNearEpsilon = 1e-3F;

bool of_length(FeatureMap kind) {
  return kind == FeatureMap::unit || kind == FeatureMap::near_unit;
}

// A head's numbers x in f32, and the exponentials of those that are not above 0.
class Numbers {
 public:
  explicit Numbers(int64_t n) : x_(n), e_(n) {}

  template <typename T>
  void read(FeatureMap kind, const T* x) {
    kernels().typed<T>().to_f32(size(), x, x_.data());
    if (kind != FeatureMap::elu && kind != FeatureMap::shares) return;
    for (size_t i = 0; i < x_.size(); ++i) e_[i] = std::min(x_[i], 0.0F);
    kernels().exp(size(), e_.data(), e_.data());
  }
  int64_t size() const { return std::ssize(x_); }
  float operator[](int64_t i) const { return x_[i]; }
  float elu_plus_one(int64_t i) const { return x_[i] > 0 ? x_[i] + 1 : e_[i]; }
  float elu_slope(int64_t i) const { return e_[i]; }  // e^0 above 0
  // The divisor of a head.
  float divisor(FeatureMap kind) const {
    float sum = kind == FeatureMap::unit ? kEpsilon : 0;
    for (int64_t i = 0; i < size(); ++i) sum += of_length(kind) ? x_[i] * x_[i] : elu_plus_one(i);
    return kind == FeatureMap::unit        ? std::sqrt(sum)
           : kind == FeatureMap::near_unit ? std::sqrt(sum) + kNearEpsilon
                                           : sum;
  }

 private:
  std::vector<float> x_, e_;
};

template <typename T>
void map_head(FeatureMap kind, Numbers& numbers, const T* x, T* y) {
  numbers.read(kind, x);
  const bool divides = kind == FeatureMap::shares || of_length(kind);
  const float by = divides ? 1 / numbers.divisor(kind) : 1;
  for (int64_t i = 0; i < numbers.size(); ++i) switch (kind) {
      case FeatureMap::elu:
      case FeatureMap::shares:
        y[i] = T(numbers.elu_plus_one(i) * by);
        break;
      case FeatureMap::relu:
        y[i] = T(std::max(numbers[i], 0.0F));
        break;
      default:
        y[i] = T(numbers[i] * by);
    }
}

// With y = f(x) / d: dx = f'(x) (dy - y . dy) / d for shares; (dy - y (y . dy)) / d for unit, and for
// near_unit with the last product divided by |x| / d.
template <typename T>
void map_head_grad(FeatureMap kind, Numbers& numbers, const T* x, const T* dy, T* dx) {
  numbers.read(kind, x);
  const int64_t n = numbers.size();
  if (kind == FeatureMap::elu || kind == FeatureMap::relu) {
    for (int64_t i = 0; i < n; ++i) {
      const float slope = kind == FeatureMap::elu ? numbers.elu_slope(i) : numbers[i] > 0 ? 1 : 0;
      dx[i] = T(slope * static_cast<float>(dy[i]));
    }
    return;
  }
  const float by = 1 / numbers.divisor(kind);
  const auto at = [&](int64_t i) { return (of_length(kind) ? numbers[i] : numbers.elu_plus_one(i)) * by; };
  float dot = 0;
  for (int64_t i = 0; i < n; ++i) dot += at(i) * static_cast<float>(dy[i]);
  if (kind == FeatureMap::near_unit) dot /= std::max(1 - kNearEpsilon * by, kEpsilon);
  for (int64_t i = 0; i < n; ++i) {
    const auto g = static_cast<float>(dy[i]);
    dx[i] = T(of_length(kind) ? (g - at(i) * dot) * by : (g - dot) * by * numbers.elu_slope(i));
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
        Numbers numbers(width);
        for (; h < end; ++h) map_head_grad(kind_, numbers, x + h * width, dy + h * width, to + h * width);
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
      Numbers numbers(width);
      for (; h < end; ++h) map_head(kind, numbers, from + h * width, to + h * width);
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<FeatureMapNode>(kind, x, heads));
  return out;
}

}  // namespace qkv

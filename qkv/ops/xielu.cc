#include "qkv/ops/xielu.h"

#include <cmath>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/softplus.h"

namespace qkv {
namespace {

constexpr float kBeta = 0.5F;
constexpr int64_t kGrain = 1 << 12;  // elements of a part: each part's sum is one number

// The growth of the slope on each side, and its derivatives by alpha_p and alpha_n.
struct Growth {
  float above, below, above_grad, below_grad;

  Growth(const Tensor& alpha_p, const Tensor& alpha_n)
      : above(softplus(alpha_p.data<float>()[0])),
        below(kBeta + softplus(alpha_n.data<float>()[0])),
        above_grad(sigmoid(alpha_p.data<float>()[0])),
        below_grad(sigmoid(alpha_n.data<float>()[0])) {}
};

class XieluNode : public Node {
 public:
  XieluNode(const Tensor& x, const Tensor& alpha_p, const Tensor& alpha_n)
      : x_(x.detach()), growth_(alpha_p, alpha_n) {
    add_input(x);
    add_input(alpha_p);
    add_input(alpha_n);
  }
  std::string_view name() const override { return "xielu"; }
  void backward(std::span<Tensor> grads) override {
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    const int64_t parts = (x_.count() + kGrain - 1) / kGrain;
    // Sums of parts, added in their order: the same bits whatever thread made them.
    std::vector<double> above(static_cast<size_t>(parts)), below(static_cast<size_t>(parts));
    with_float_type("xielu", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = grads[0].data<T>();
      T* to = dx.mutable_data<T>();
      parallel_for(parts, 1, [&](int64_t part, int64_t end) {
        for (; part < end; ++part) {
          double &sum_above = above[static_cast<size_t>(part)], &sum_below = below[static_cast<size_t>(part)];
          for (int64_t i = part * kGrain; i < std::min(x_.count(), (part + 1) * kGrain); ++i) {
            const auto v = static_cast<float>(x[i]), d = static_cast<float>(dy[i]);
            if (v > 0) {
              to[i] = T(d * (2 * growth_.above * v + kBeta));
              sum_above += d * v * v;
            } else {
              const float e = std::expm1(v);
              to[i] = T(d * (growth_.below * e + kBeta));
              sum_below += d * (e - v);
            }
          }
        }
      });
    });
    give(0, std::move(dx));
    const auto total = [](const std::vector<double>& sums, float factor) {
      double sum = 0;
      for (const double s : sums) sum += s;
      return Tensor::of({1}, std::vector<float>{static_cast<float>(sum * factor)});
    };
    give(1, total(above, growth_.above_grad));
    give(2, total(below, growth_.below_grad));
  }

 private:
  Tensor x_;
  Growth growth_;
};

}  // namespace

Tensor xielu(const Tensor& x, const Tensor& alpha_p, const Tensor& alpha_n) {
  for (const auto& [what, alpha] : {std::pair("alpha_p", &alpha_p), {"alpha_n", &alpha_n}}) {
    expect_shape("xielu", what, *alpha, {1});
    expect_dtype("xielu", what, *alpha, DType::f32);
  }
  const Growth growth(alpha_p, alpha_n);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("xielu", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.count(), kGrain, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const auto v = static_cast<float>(from[i]);
        to[i] = T(kBeta * v + (v > 0 ? growth.above * v * v : growth.below * (std::expm1(v) - v)));
      }
    });
  });
  if (wants_grad({&x, &alpha_p, &alpha_n})) connect(out, std::make_shared<XieluNode>(x, alpha_p, alpha_n));
  return out;
}

}  // namespace qkv

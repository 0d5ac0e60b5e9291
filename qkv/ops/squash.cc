#include "qkv/ops/squash.h"

#include <cmath>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

template <typename T>
float squared_norm(const T* x, int64_t width, float epsilon) {
  float sum = epsilon;
  for (int64_t c = 0; c < width; ++c) sum += static_cast<float>(x[c]) * static_cast<float>(x[c]);
  return sum;
}

// y = f(n) x with f = sqrt(n) / (1 + n):  dx = f dy + 2 f'(n) (x . dy) x, f' = (1 - n) / (2 sqrt(n) (1 +
// n)^2).
class SquashNode : public Node {
 public:
  SquashNode(const Tensor& x, float epsilon) : x_(x.detach()), epsilon_(epsilon) { add_input(x); }
  std::string_view name() const override { return "squash"; }
  void backward(std::span<Tensor> grads) override {
    const int64_t width = x_.width();
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    with_float_type("squash", x_.dtype(), [&]<typename T>(T) {
      parallel_for(x_.rows(), row_grain(width), [&](int64_t r, int64_t end) {
        for (; r < end; ++r) {
          const T *x = x_.data<T>() + r * width, *dy = grads[0].data<T>() + r * width;
          T* to = dx.mutable_data<T>() + r * width;
          const float n = squared_norm(x, width, epsilon_), root = std::sqrt(n);
          float along = 0;
          for (int64_t c = 0; c < width; ++c) along += static_cast<float>(x[c]) * static_cast<float>(dy[c]);
          const float f = n > 0 ? root / (1 + n) : 0,
                      slope = n > 0 ? along * (1 - n) / (root * (1 + n) * (1 + n)) : 0;
          for (int64_t c = 0; c < width; ++c)
            to[c] = T(f * static_cast<float>(dy[c]) + slope * static_cast<float>(x[c]));
        }
      });
    });
    give(0, std::move(dx));
  }

 private:
  Tensor x_;
  float epsilon_;
};

}  // namespace

Tensor squash(const Tensor& x, float epsilon) {
  check(x.defined() && x.shape().rank() == 2, "squash: expected x [N, D]");
  check(epsilon >= 0, "squash: epsilon must not be negative, got {}", epsilon);
  const int64_t width = x.width();
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("squash", x.dtype(), [&]<typename T>(T) {
    parallel_for(x.rows(), row_grain(width), [&](int64_t r, int64_t end) {
      for (; r < end; ++r) {
        const T* from = x.data<T>() + r * width;
        T* to = out.mutable_data<T>() + r * width;
        const float n = squared_norm(from, width, epsilon), f = n > 0 ? std::sqrt(n) / (1 + n) : 0;
        for (int64_t c = 0; c < width; ++c) to[c] = T(f * static_cast<float>(from[c]));
      }
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<SquashNode>(x, epsilon));
  return out;
}

}  // namespace qkv

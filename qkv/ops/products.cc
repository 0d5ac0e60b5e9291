#include "qkv/ops/products.h"

#include <algorithm>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

// x y, both [N, D] of type T.
template <typename T>
Tensor multiply(const Tensor& x, const Tensor& y) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const T *a = x.data<T>(), *b = y.data<T>();
  T* to = out.mutable_data<T>();
  parallel_for(x.count(), kElementGrain, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) to[i] = T(static_cast<float>(a[i]) * static_cast<float>(b[i]));
  });
  return out;
}

class ProductNode : public Node {
 public:
  ProductNode(const Tensor& x, const Tensor& y) {
    add_input(x);
    add_input(y);
    x_ = x.detach();
    y_ = y.detach();
  }
  std::string_view name() const override { return "product"; }
  void backward(std::span<Tensor> grads) override {
    with_float_type("product", x_.dtype(), [&]<typename T>(T) {
      if (wants(0)) give(0, multiply<T>(grads[0], y_));
      if (wants(1)) give(1, multiply<T>(grads[0], x_));
    });
  }

 private:
  Tensor x_, y_;
};

// Calls f(row, head) for all heads of all rows of x.
template <typename F>
void for_heads(const Tensor& x, int64_t heads, const F& f) {
  parallel_for(x.dim(0), row_grain(x.width()), [&](int64_t r, int64_t end) {
    for (; r < end; ++r)
      for (int64_t h = 0; h < heads; ++h) f(r, h);
  });
}

class ScaledHeadsNode : public Node {
 public:
  ScaledHeadsNode(const Tensor& x, const Tensor& factors) {
    add_input(x);
    add_input(factors);
    x_ = x.detach();
    factors_ = factors.detach();
  }
  std::string_view name() const override { return "scaled_heads"; }
  void backward(std::span<Tensor> grads) override {
    with_float_type("scaled_heads", x_.dtype(), [&]<typename T>(T) { backward_of<T>(grads[0].data<T>()); });
  }

 private:
  template <typename T>
  void backward_of(const T* dy) {
    const int64_t heads = factors_.width(), d = x_.width() / heads;
    const bool of_rows = factors_.shape().rank() == 2;
    const float* factor = factors_.data<float>();
    if (wants(0)) {
      Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
      T* to = dx.mutable_data<T>();
      for_heads(x_, heads, [&](int64_t r, int64_t h) {
        const float f = factor[of_rows ? r * heads + h : h];
        for (int64_t i = (r * heads + h) * d; i < (r * heads + h + 1) * d; ++i)
          to[i] = T(f * static_cast<float>(dy[i]));
      });
      give(0, std::move(dx));
    }
    if (!wants(1)) return;
    Tensor dots = Tensor::empty({x_.dim(0), heads}, DType::f32);
    const T* x = x_.data<T>();
    float* dot = dots.mutable_data<float>();
    for_heads(x_, heads, [&](int64_t r, int64_t h) {
      float sum = 0;
      for (int64_t i = (r * heads + h) * d; i < (r * heads + h + 1) * d; ++i)
        sum += static_cast<float>(x[i]) * static_cast<float>(dy[i]);
      dot[r * heads + h] = sum;
    });
    if (of_rows) return give(1, std::move(dots));
    weight_grad(1, {heads}, [&](Tensor& target, bool accumulate) {
      float* to = target.mutable_data<float>();
      if (!accumulate) std::fill_n(to, heads, 0.0F);
      for (int64_t i = 0; i < dots.count(); ++i) to[i % heads] += dot[i];
    });
  }

  Tensor x_, factors_;
};

// Heads of x times f32 [N, H].
template <typename T>
Tensor heads_times(const Tensor& x, const Tensor& factors) {
  const int64_t heads = factors.width(), d = x.width() / heads;
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const T* from = x.data<T>();
  const float* factor = factors.data<float>();
  T* to = out.mutable_data<T>();
  for_heads(x, heads, [&](int64_t r, int64_t h) {
    for (int64_t i = (r * heads + h) * d; i < (r * heads + h + 1) * d; ++i)
      to[i] = T(factor[r * heads + h] * static_cast<float>(from[i]));
  });
  return out;
}

class HeadDotsNode : public Node {
 public:
  HeadDotsNode(const Tensor& x, const Tensor& y) {
    add_input(x);
    add_input(y);
    x_ = x.detach();
    y_ = y.detach();
  }
  std::string_view name() const override { return "head_dots"; }
  void backward(std::span<Tensor> grads) override {
    with_float_type("head_dots", x_.dtype(), [&]<typename T>(T) {
      if (wants(0)) give(0, heads_times<T>(y_, grads[0]));
      if (wants(1)) give(1, heads_times<T>(x_, grads[0]));
    });
  }

 private:
  Tensor x_, y_;
};

}  // namespace

Tensor product(const Tensor& x, const Tensor& y) {
  check(x.defined() && x.shape().rank() == 2, "product: expected x [N, D], got {}", x);
  expect_shape("product", "y", y, x.shape());
  expect_dtype("product", "y", y, x.dtype());
  Tensor out = with_float_type("product", x.dtype(), [&]<typename T>(T) { return multiply<T>(x, y); });
  if (wants_grad({&x, &y})) connect(out, std::make_shared<ProductNode>(x, y));
  return out;
}

Tensor scaled_heads(const Tensor& x, const Tensor& factors) {
  check(x.defined() && x.shape().rank() == 2 && factors.defined() && factors.width() > 0 &&
            x.width() % factors.width() == 0 &&
            (factors.shape().rank() == 1 || factors.shape() == Shape({x.dim(0), factors.width()})),
        "scaled_heads: factors {} do not fit x {}", factors, x);
  expect_dtype("scaled_heads", "factors", factors, DType::f32);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const int64_t heads = factors.width(), d = x.width() / heads;
  const bool of_rows = factors.shape().rank() == 2;
  with_float_type("scaled_heads", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    for_heads(x, heads, [&](int64_t r, int64_t h) {
      const float f = factors.data<float>()[of_rows ? r * heads + h : h];
      for (int64_t i = (r * heads + h) * d; i < (r * heads + h + 1) * d; ++i)
        to[i] = T(f * static_cast<float>(from[i]));
    });
  });
  if (wants_grad({&x, &factors})) connect(out, std::make_shared<ScaledHeadsNode>(x, factors));
  return out;
}

Tensor head_dots(const Tensor& x, const Tensor& y, int64_t heads) {
  check(x.defined() && x.shape().rank() == 2 && heads > 0 && x.width() % heads == 0,
        "head_dots: {} heads do not fit x {}", heads, x);
  expect_shape("head_dots", "y", y, x.shape());
  expect_dtype("head_dots", "y", y, x.dtype());
  Tensor out = Tensor::empty({x.dim(0), heads}, DType::f32);
  const int64_t d = x.width() / heads;
  with_float_type("head_dots", x.dtype(), [&]<typename T>(T) {
    const T *a = x.data<T>(), *b = y.data<T>();
    float* to = out.mutable_data<float>();
    for_heads(x, heads, [&](int64_t r, int64_t h) {
      float sum = 0;
      for (int64_t i = (r * heads + h) * d; i < (r * heads + h + 1) * d; ++i)
        sum += static_cast<float>(a[i]) * static_cast<float>(b[i]);
      to[r * heads + h] = sum;
    });
  });
  if (wants_grad({&x, &y})) connect(out, std::make_shared<HeadDotsNode>(x, y));
  return out;
}

}  // namespace qkv

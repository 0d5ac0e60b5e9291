#include "qkv/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

Tensor converted(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x.detach();
  Tensor out = Tensor::empty(x.shape(), dtype);
  const bool widen = dtype == DType::f32;
  check((widen && x.dtype() == DType::bf16) || (dtype == DType::bf16 && x.dtype() == DType::f32),
        "convert: from {} to {} is not supported", name_of(x.dtype()), name_of(dtype));
  parallel_for(x.count(), kElementGrain, [&](int64_t i, int64_t end) {
    if (widen)
      kernels().bf16.to_f32(end - i, x.data<BFloat16>() + i, out.mutable_data<float>() + i);
    else
      kernels().bf16.from_f32(end - i, x.data<float>() + i, out.mutable_data<BFloat16>() + i);
  });
  return out;
}

class ConvertNode : public Node {
 public:
  explicit ConvertNode(const Tensor& x) : dtype_(x.dtype()) { add_input(x); }
  std::string_view name() const override { return "convert"; }
  void backward(std::span<Tensor> grads) override { give(0, converted(grads[0], dtype_)); }

 private:
  DType dtype_;
};

}  // namespace

Tensor convert(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = converted(x, dtype);
  if (wants_grad({&x})) connect(out, std::make_shared<ConvertNode>(x));
  return out;
}

namespace {

class AddNode : public Node {
 public:
  AddNode(const Tensor& x, const Tensor& y) {
    add_input(x);
    add_input(y);
  }
  std::string_view name() const override { return "add"; }
  void backward(std::span<Tensor> grads) override {
    give(0, grads[0]);
    give(1, grads[0]);
  }
};

}  // namespace

Tensor add(const Tensor& x, const Tensor& y) {
  expect_shape("add", "y", y, x.shape());
  expect_dtype("add", "y", y, x.dtype());
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("add", x.dtype(), [&]<typename T>(T) {
    const T *a = x.data<T>(), *b = y.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.count(), kElementGrain,
                 [&](int64_t i, int64_t end) { kernels().typed<T>().add(end - i, a + i, b + i, to + i); });
  });
  if (wants_grad({&x, &y})) connect(out, std::make_shared<AddNode>(x, y));
  return out;
}

namespace {

Tensor times(const Tensor& x, float factor) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("scaled", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.count(), kElementGrain, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) to[i] = T(factor * static_cast<float>(from[i]));
    });
  });
  return out;
}

class ScaledNode : public Node {
 public:
  ScaledNode(const Tensor& x, float factor) : factor_(factor) { add_input(x); }
  std::string_view name() const override { return "scaled"; }
  void backward(std::span<Tensor> grads) override { give(0, times(grads[0], factor_)); }

 private:
  float factor_;
};

}  // namespace

Tensor scaled(const Tensor& x, float factor) {
  Tensor out = times(x, factor);
  if (wants_grad({&x})) connect(out, std::make_shared<ScaledNode>(x, factor));
  return out;
}

namespace {

class ClippedNode : public Node {
 public:
  ClippedNode(const Tensor& x, float limit) : x_(x.detach()), limit_(limit) { add_input(x); }
  std::string_view name() const override { return "clipped"; }
  void backward(std::span<Tensor> grads) override {
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    with_float_type("clipped", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = grads[0].data<T>();
      T* to = dx.mutable_data<T>();
      parallel_for(x_.count(), kElementGrain, [&](int64_t i, int64_t end) {
        for (; i < end; ++i) to[i] = std::abs(static_cast<float>(x[i])) <= limit_ ? dy[i] : T(0.0F);
      });
    });
    give(0, std::move(dx));
  }

 private:
  Tensor x_;
  float limit_;
};

}  // namespace

Tensor clipped(const Tensor& x, float limit) {
  check(limit > 0, "clipped: a limit must be positive, got {}", limit);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("clipped", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.count(), kElementGrain, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) to[i] = T(std::clamp(static_cast<float>(from[i]), -limit, limit));
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<ClippedNode>(x, limit));
  return out;
}

namespace {

class ActivationNode : public Node {
 public:
  ActivationNode(Activation kind, const Tensor& x) : kind_(kind), x_(x.detach()) { add_input(x); }
  std::string_view name() const override { return "activation"; }
  void backward(std::span<Tensor> grads) override {
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    with_float_type("activation", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = grads[0].data<T>();
      T* to = dx.mutable_data<T>();
      parallel_for(x_.count(), kElementGrain, [&](int64_t i, int64_t end) {
        kernels().typed<T>().activation_grad(kind_, end - i, x + i, dy + i, to + i);
      });
    });
    give(0, std::move(dx));
  }

 private:
  Activation kind_;
  Tensor x_;
};

}  // namespace

Tensor activation(Activation kind, const Tensor& x) {
  check(kind != Activation::xielu, "activation: xielu has numbers of its own (ops/xielu.h)");
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("activation", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.count(), kElementGrain, [&](int64_t i, int64_t end) {
      kernels().typed<T>().activation(kind, end - i, from + i, to + i);
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<ActivationNode>(kind, x));
  return out;
}

namespace {

// y = f(a) b with x = [a, b]: da = f'(a) b dy, db = f(a) dy.
class GatedNode : public Node {
 public:
  GatedNode(Activation kind, const Tensor& x) : kind_(kind), x_(x.detach()) { add_input(x); }
  std::string_view name() const override { return "gated"; }
  void backward(std::span<Tensor> grads) override {
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    const int64_t half = x_.width() / 2;
    with_float_type("gated", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = grads[0].data<T>();
      T* to = dx.mutable_data<T>();
      parallel_for(x_.rows(), row_grain(half), [&](int64_t r, int64_t end) {
        for (; r < end; ++r) {
          const T *a = x + r * 2 * half, *b = a + half, *g = dy + r * half;
          T *da = to + r * 2 * half, *db = da + half;
          for (int64_t c = 0; c < half; ++c) da[c] = T(static_cast<float>(b[c]) * static_cast<float>(g[c]));
          kernels().typed<T>().activation_grad(kind_, half, a, da, da);
          kernels().typed<T>().activation(kind_, half, a, db);
          for (int64_t c = 0; c < half; ++c) db[c] = T(static_cast<float>(db[c]) * static_cast<float>(g[c]));
        }
      });
    });
    give(0, std::move(dx));
  }

 private:
  Activation kind_;
  Tensor x_;
};

}  // namespace

Tensor gated(Activation kind, const Tensor& x) {
  check(kind != Activation::xielu, "gated: xielu has numbers of its own (ops/xielu.h)");
  check(x.defined() && x.shape().rank() == 2 && x.width() % 2 == 0, "gated: expected x [N, 2 H], got {}", x);
  const int64_t half = x.width() / 2;
  Tensor out = Tensor::empty({x.rows(), half}, x.dtype());
  with_float_type("gated", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.rows(), row_grain(kFunctionCost * half), [&](int64_t r, int64_t end) {
      for (; r < end; ++r) {
        const T* b = from + (2 * r + 1) * half;
        T* y = to + r * half;
        kernels().typed<T>().activation(kind, half, from + 2 * r * half, y);
        for (int64_t c = 0; c < half; ++c) y[c] = T(static_cast<float>(y[c]) * static_cast<float>(b[c]));
      }
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<GatedNode>(kind, x));
  return out;
}

namespace {

// The range that limited_gate clamps elements to, and its addition to them.
struct Bounds {
  float low, high, more;
};

// Calls each(i, bounds) for the elements of rows [N, 2 H]: the gates' and then the values'.
template <typename Each>
void for_halves(int64_t rows, int64_t width, float limit, Each each) {
  const Bounds gates{-std::numeric_limits<float>::infinity(), limit, 0}, values{-limit, limit, 1};
  parallel_for(rows, row_grain(width), [&](int64_t r, int64_t end) {
    for (; r < end; ++r) {
      const int64_t middle = r * width + width / 2;
      for (int64_t i = r * width; i < middle; ++i) each(i, gates);
      for (int64_t i = middle; i < (r + 1) * width; ++i) each(i, values);
    }
  });
}

class LimitedGateNode : public Node {
 public:
  LimitedGateNode(const Tensor& x, float limit) : x_(x.detach()), limit_(limit) { add_input(x); }
  std::string_view name() const override { return "limited_gate"; }
  void backward(std::span<Tensor> grads) override {
    Tensor dx = Tensor::empty(x_.shape(), x_.dtype());
    const int64_t width = x_.width();
    with_float_type("limited_gate", x_.dtype(), [&]<typename T>(T) {
      const T *x = x_.data<T>(), *dy = grads[0].data<T>();
      T* to = dx.mutable_data<T>();
      for_halves(x_.rows(), width, limit_, [&](int64_t i, const Bounds& in) {
        const auto v = static_cast<float>(x[i]);
        to[i] = v >= in.low && v <= in.high ? dy[i] : T(0.0F);
      });
    });
    give(0, std::move(dx));
  }

 private:
  Tensor x_;
  float limit_;
};

}  // namespace

Tensor limited_gate(const Tensor& x, float limit) {
  check(x.defined() && x.shape().rank() == 2 && x.width() % 2 == 0,
        "limited_gate: expected x [N, 2 H], got {}", x);
  check(limit > 0, "limited_gate: a limit must be positive, got {}", limit);
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const int64_t width = x.width();
  with_float_type("limited_gate", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    for_halves(x.rows(), width, limit, [&](int64_t i, const Bounds& in) {
      to[i] = T(std::clamp(static_cast<float>(from[i]), in.low, in.high) + in.more);
    });
  });
  if (wants_grad({&x})) connect(out, std::make_shared<LimitedGateNode>(x, limit));
  return out;
}

namespace {

Tensor dropped(const Tensor& x, const Dropout& dropout) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  with_float_type("dropout", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    const int64_t width = x.width();
    parallel_for(x.rows(), row_grain(width), [&](int64_t r, int64_t end) {
      Dropout part = dropout;
      part.first_row += r;
      kernels().typed<T>().dropout(end - r, width, from + r * width, part, to + r * width);
    });
  });
  return out;
}

// Dropping is linear and its own transpose: the gradient is dropped the same way.
class DropoutNode : public Node {
 public:
  DropoutNode(const Tensor& x, const Dropout& dropout) : dropout_(dropout) { add_input(x); }
  std::string_view name() const override { return "dropout"; }
  void backward(std::span<Tensor> grads) override { give(0, dropped(grads[0], dropout_)); }

 private:
  Dropout dropout_;
};

}  // namespace

Tensor dropout(const Tensor& x, const Dropout& dropout) {
  check(dropout.p >= 0 && dropout.p < 1, "dropout: probability must be in [0, 1), got {}", dropout.p);
  if (!dropout.on()) return x;
  Tensor out = dropped(x, dropout);
  if (wants_grad({&x})) connect(out, std::make_shared<DropoutNode>(x, dropout));
  return out;
}

}  // namespace qkv

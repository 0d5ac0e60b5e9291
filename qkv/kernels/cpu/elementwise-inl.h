// Row-wise passes without reductions: conversion, addition, dropout, activations, column sums, optimizers.
#if defined(QKV_KERNELS_CPU_ELEMENTWISE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_ELEMENTWISE_INL_H
#undef QKV_KERNELS_CPU_ELEMENTWISE_INL_H
#else
#define QKV_KERNELS_CPU_ELEMENTWISE_INL_H
#endif

#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

template <typename T>
void to_f32(int64_t n, const T* x, float* y) {
  map(n, x, y, [](VF v) HWY_ATTR { return v; });
}

template <typename T>
void from_f32(int64_t n, const float* x, T* y) {
  map(n, x, y, [](VF v) HWY_ATTR { return v; });
}

template <typename T>
void add(int64_t n, const T* x, const T* y, T* out) {
  map(n, x, y, out, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}

template <typename T>
void dropout(int64_t rows, int64_t width, const T* x, Dropout dropout, T* out) {
  const DF d;
  const DU du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint32_t threshold = dropout_threshold(dropout.p);
  const float keep_scale = 1 / (1 - dropout.p);
  for (int64_t r = 0; r < rows; ++r) {
    const DropoutKey key = dropout.key.row(dropout.first_row + r);
    const VU a = hn::Set(du, key.a), b = hn::Set(du, key.b);
    VU index = hn::Iota(du, 0);
    const T* in = x + r * width;
    T* to = out + r * width;
    int64_t c = 0;
    for (; c + lanes <= width; c += lanes, index = hn::Add(index, hn::Set(du, static_cast<uint32_t>(lanes))))
      store(d, drop(d, load(d, in + c), dropout_bits_of(du, a, b, index), threshold, keep_scale), to + c);
    if (c < width)
      store_tail(
          d,
          drop(d, load_tail(d, in + c, width - c), dropout_bits_of(du, a, b, index), threshold, keep_scale),
          to + c, width - c);
  }
}

// 1 / (1 + exp(-x))
HWY_INLINE VF sigmoid(DF d, VF x) {
  const VF one = hn::Set(d, 1.0f);
  return reciprocal(d, hn::Add(one, exponential(d, hn::Neg(x))));
}

// Phi(x) = (1 + erf(x / sqrt 2)) / 2 and exp(-x^2/2), by Abramowitz & Stegun 7.1.26 (error below 1.5e-7).
struct NormalDistribution {
  VF cumulative, gaussian;
};
HWY_INLINE NormalDistribution normal_distribution(DF d, VF x) {
  const VF one = hn::Set(d, 1.0f), z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654752f));
  const VF t = reciprocal(d, hn::MulAdd(hn::Set(d, 0.3275911f), z, one));
  VF poly = hn::Set(d, 1.061405429f);
  poly = hn::MulAdd(poly, t, hn::Set(d, -1.453152027f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 1.421413741f));
  poly = hn::MulAdd(poly, t, hn::Set(d, -0.284496736f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.254829592f));
  const VF gaussian = exponential(d, hn::Neg(hn::Mul(z, z)));
  const VF upper = hn::Mul(hn::Set(d, 0.5f), hn::Mul(hn::Mul(poly, t), gaussian));  // 1 - Phi(|x|)
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), upper, hn::Sub(one, upper)), gaussian};
}

// 2 sigmoid(2 x) - 1; near 0, where that cancels, the series x - x^3/3 + 2 x^5/15 - 17 x^7/315 + 62 x^9/2835.
HWY_INLINE VF hyperbolic_tangent(DF d, VF x) {
  const VF two = hn::Set(d, 2.0f), square = hn::Mul(x, x);
  const VF far = hn::MulSub(two, sigmoid(d, hn::Mul(two, x)), hn::Set(d, 1.0f));
  VF series = hn::Set(d, 62.0f / 2835);
  series = hn::MulAdd(series, square, hn::Set(d, -17.0f / 315));
  series = hn::MulAdd(series, square, hn::Set(d, 2.0f / 15));
  series = hn::MulAdd(series, square, hn::Set(d, -1.0f / 3));
  series = hn::MulAdd(hn::Mul(series, square), x, x);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0.25f)), series, far);
}

// 2 sqrt(2/pi) (x + 0.044715 x^3): the tanh approximation is x sigmoid(u).
HWY_INLINE VF gelu_argument(DF d, VF x) {
  const VF cubic = hn::MulAdd(hn::Set(d, 0.044715f), hn::Mul(x, x), hn::Set(d, 1.0f));
  return hn::Mul(hn::Set(d, 1.5957691216057308f), hn::Mul(x, cubic));
}

template <typename T>
void activation(Activation kind, int64_t n, const T* x, T* y) {
  switch (kind) {
    case Activation::relu:
      return map(n, x, y, [](VF v) HWY_ATTR { return hn::Max(v, hn::Zero(DF())); });
    case Activation::gelu:
      return map(n, x, y, [](VF v) HWY_ATTR { return hn::Mul(v, normal_distribution(DF(), v).cumulative); });
    case Activation::gelu_tanh:
      return map(n, x, y, [](VF v) HWY_ATTR { return hn::Mul(v, sigmoid(DF(), gelu_argument(DF(), v))); });
    case Activation::gelu_quick:
      return map(n, x, y,
                 [](VF v) HWY_ATTR { return hn::Mul(v, sigmoid(DF(), hn::Mul(hn::Set(DF(), 1.702f), v))); });
    case Activation::relu_squared:
      return map(n, x, y, [](VF v) HWY_ATTR {
        const VF positive = hn::Max(v, hn::Zero(DF()));
        return hn::Mul(positive, positive);
      });
    case Activation::silu:
      return map(n, x, y, [](VF v) HWY_ATTR { return hn::Mul(v, sigmoid(DF(), v)); });
    case Activation::tanh:
      return map(n, x, y, [](VF v) HWY_ATTR { return hyperbolic_tangent(DF(), v); });
    case Activation::sigmoid:
      return map(n, x, y, [](VF v) HWY_ATTR { return sigmoid(DF(), v); });
    case Activation::identity:
    case Activation::xielu:
      return map(n, x, y, [](VF v) HWY_ATTR { return v; });
  }
}

template <typename T>
void activation_grad(Activation kind, int64_t n, const T* x, const T* dy, T* dx) {
  switch (kind) {
    case Activation::relu:
      return map(n, x, dy, dx,
                 [](VF v, VF g) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(v, hn::Zero(DF())), g); });
    case Activation::gelu:
      return map(n, x, dy, dx, [](VF v, VF g) HWY_ATTR {
        const NormalDistribution phi = normal_distribution(DF(), v);
        const VF density = hn::Mul(hn::Set(DF(), 0.3989422804014327f), phi.gaussian);
        return hn::Mul(g, hn::MulAdd(v, density, phi.cumulative));
      });
    case Activation::gelu_tanh:
      return map(n, x, dy, dx, [](VF v, VF g) HWY_ATTR {
        const DF d;
        const VF one = hn::Set(d, 1.0f), s = sigmoid(d, gelu_argument(d, v));
        const VF slope =
            hn::Mul(hn::Set(d, 1.5957691216057308f), hn::MulAdd(hn::Set(d, 0.134145f), hn::Mul(v, v), one));
        return hn::Mul(g, hn::MulAdd(hn::Mul(v, s), hn::Mul(hn::Sub(one, s), slope), s));
      });
    case Activation::gelu_quick:
      return map(n, x, dy, dx, [](VF v, VF g) HWY_ATTR {
        const DF d;
        const VF u = hn::Mul(hn::Set(d, 1.702f), v), s = sigmoid(d, u);
        return hn::Mul(g, hn::MulAdd(hn::Mul(u, s), hn::Sub(hn::Set(d, 1.0f), s), s));
      });
    case Activation::relu_squared:
      return map(n, x, dy, dx, [](VF v, VF g) HWY_ATTR {
        return hn::Mul(g, hn::Mul(hn::Set(DF(), 2.0f), hn::Max(v, hn::Zero(DF()))));
      });
    case Activation::silu:
      return map(n, x, dy, dx, [](VF v, VF g) HWY_ATTR {
        const DF d;
        const VF s = sigmoid(d, v);
        return hn::Mul(g, hn::MulAdd(hn::Mul(v, s), hn::Sub(hn::Set(d, 1.0f), s), s));
      });
    case Activation::tanh:
      return map(n, x, dy, dx, [](VF v, VF g) HWY_ATTR {
        const VF t = hyperbolic_tangent(DF(), v);
        return hn::Mul(g, hn::NegMulAdd(t, t, hn::Set(DF(), 1.0f)));
      });
    case Activation::sigmoid:
      return map(n, x, dy, dx, [](VF v, VF g) HWY_ATTR {
        const VF s = sigmoid(DF(), v);
        return hn::Mul(g, hn::Mul(s, hn::Sub(hn::Set(DF(), 1.0f), s)));
      });
    case Activation::identity:
    case Activation::xielu:
      return map(n, x, dy, dx, [](VF /*v*/, VF g) HWY_ATTR { return g; });
  }
}

template <typename T>
void column_sums(int64_t rows, int64_t width, const T* x, int64_t begin, int64_t end, float* sums) {
  for (int64_t r = 0; r < rows; ++r)
    map(end - begin, x + r * width + begin, sums + begin, sums + begin,
        [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}

template <typename T>
void scatter_add(int64_t rows, int64_t width, const T* x, const int32_t* ids, int64_t begin, int64_t end,
                 float* table) {
  for (int64_t r = 0; r < rows; ++r) {
    float* to = table + ids[r] * width + begin;
    map(end - begin, x + r * width + begin, to, to, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
  }
}

double sum_squares(int64_t n, const float* x) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  double total = 0;
  for (int64_t i = 0; i < n;) {  // f32 within a run, f64 across runs
    const int64_t end = std::min(n, i + 4096);
    VF sum = hn::Zero(d);
    for (; i + lanes <= end; i += lanes) {
      __builtin_prefetch(x + i + 512);  // beyond the page, where the processor's own prefetching ends
      const VF v = load(d, x + i);
      sum = hn::MulAdd(v, v, sum);
    }
    if (i < end) {
      const VF v = load_tail(d, x + i, end - i);
      sum = hn::MulAdd(v, v, sum);
      i = end;
    }
    total += double{sum_of(sum)};
  }
  return total;
}

void scale(int64_t n, float factor, float* x) {
  map(n, x, x, [=](VF v) HWY_ATTR { return hn::Mul(v, hn::Set(DF(), factor)); });
}

void exponentials(int64_t n, const float* x, float* y) {
  map(n, x, y, [](VF v) HWY_ATTR { return exponential(DF(), v); });
}

void axpy(int64_t n, float factor, const float* x, float* y) {
  map(n, x, y, y, [=](VF a, VF b) HWY_ATTR { return hn::MulAdd(a, hn::Set(DF(), factor), b); });
}

// One vector of a rule's step: the weights' descent direction; m and v are brought up to date.
template <Rule rule>
HWY_INLINE VF direction(DF d, const Update& u, VF g, VF w, VF& m, VF& v) {
  const VF epsilon = hn::Set(d, u.epsilon);
  if constexpr (rule == Rule::momentum || rule == Rule::nesterov) {
    m = hn::MulAdd(hn::Set(d, u.momentum), m, g);
    return rule == Rule::momentum ? m : hn::MulAdd(hn::Set(d, u.momentum), m, g);
  } else if constexpr (rule == Rule::adagrad) {
    v = hn::MulAdd(g, g, v);
    return hn::Div(g, hn::Add(hn::Sqrt(v), epsilon));
  } else if constexpr (rule == Rule::rmsprop) {
    v = hn::MulAdd(hn::Set(d, u.beta2), v, hn::Mul(hn::Set(d, 1 - u.beta2), hn::Mul(g, g)));
    return hn::Div(g, hn::Add(hn::Sqrt(v), epsilon));
  } else if constexpr (rule == Rule::adam) {
    m = hn::MulAdd(hn::Set(d, u.beta1), m, hn::Mul(hn::Set(d, 1 - u.beta1), g));
    v = hn::MulAdd(hn::Set(d, u.beta2), v, hn::Mul(hn::Set(d, 1 - u.beta2), hn::Mul(g, g)));
    const VF root = hn::Sqrt(hn::Mul(v, hn::Set(d, 1 / u.bias2)));
    const VF step = hn::Div(hn::Mul(m, hn::Set(d, 1 / u.bias1)), hn::Add(root, epsilon));
    return hn::MulAdd(hn::Set(d, u.decay), w, step);
  } else if constexpr (rule == Rule::lion) {
    const VF c = hn::MulAdd(hn::Set(d, u.beta1), m, hn::Mul(hn::Set(d, 1 - u.beta1), g));
    const VF sign = hn::IfThenZeroElse(hn::Eq(c, hn::Zero(d)), hn::CopySign(hn::Set(d, 1.0f), c));
    m = hn::MulAdd(hn::Set(d, u.beta2), m, hn::Mul(hn::Set(d, 1 - u.beta2), g));
    return hn::MulAdd(hn::Set(d, u.decay), w, sign);
  }
  return g;
}

template <Rule rule>
void update_with(const Update& u, int64_t n, float* w, const float* g, float* m, float* v, BFloat16* shadow) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t count = std::min(lanes, n - i);
    VF wi = load_part(d, w + i, count), mi = hn::Zero(d), vi = hn::Zero(d);
    if constexpr (remembers_first(rule)) mi = load_part(d, m + i, count);
    if constexpr (remembers_second(rule)) vi = load_part(d, v + i, count);
    const VF gi =
        hn::MulAdd(hn::Set(d, u.l2), wi, hn::Mul(hn::Set(d, u.grad_scale), load_part(d, g + i, count)));
    wi = hn::NegMulAdd(hn::Set(d, u.lr), direction<rule>(d, u, gi, wi, mi, vi), wi);
    store_part(d, wi, w + i, count);
    if constexpr (remembers_first(rule)) store_part(d, mi, m + i, count);
    if constexpr (remembers_second(rule)) store_part(d, vi, v + i, count);
    if (shadow) store_part(d, wi, shadow + i, count);
  }
}

void update(const Update& u, int64_t n, float* w, const float* g, float* m, float* v, BFloat16* shadow) {
  switch (u.rule) {
    case Rule::sgd:
      return update_with<Rule::sgd>(u, n, w, g, m, v, shadow);
    case Rule::momentum:
      return update_with<Rule::momentum>(u, n, w, g, m, v, shadow);
    case Rule::nesterov:
      return update_with<Rule::nesterov>(u, n, w, g, m, v, shadow);
    case Rule::adagrad:
      return update_with<Rule::adagrad>(u, n, w, g, m, v, shadow);
    case Rule::rmsprop:
      return update_with<Rule::rmsprop>(u, n, w, g, m, v, shadow);
    case Rule::adam:
      return update_with<Rule::adam>(u, n, w, g, m, v, shadow);
    case Rule::lion:
      return update_with<Rule::lion>(u, n, w, g, m, v, shadow);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

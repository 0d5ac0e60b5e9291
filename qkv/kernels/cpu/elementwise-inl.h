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
  return hn::Div(one, hn::Add(one, exponential(d, hn::Neg(x))));
}

// Phi(x) = (1 + erf(x / sqrt 2)) / 2 and exp(-x^2/2), by Abramowitz & Stegun 7.1.26 (error below 1.5e-7).
struct NormalDistribution {
  VF cumulative, gaussian;
};
HWY_INLINE NormalDistribution normal_distribution(DF d, VF x) {
  const VF one = hn::Set(d, 1.0f), z = hn::Mul(hn::Abs(x), hn::Set(d, 0.70710678118654752f));
  const VF t = hn::Div(one, hn::MulAdd(hn::Set(d, 0.3275911f), z, one));
  VF poly = hn::Set(d, 1.061405429f);
  poly = hn::MulAdd(poly, t, hn::Set(d, -1.453152027f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 1.421413741f));
  poly = hn::MulAdd(poly, t, hn::Set(d, -0.284496736f));
  poly = hn::MulAdd(poly, t, hn::Set(d, 0.254829592f));
  const VF gaussian = exponential(d, hn::Neg(hn::Mul(z, z)));
  const VF upper = hn::Mul(hn::Set(d, 0.5f), hn::Mul(hn::Mul(poly, t), gaussian));  // 1 - Phi(|x|)
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), upper, hn::Sub(one, upper)), gaussian};
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
      const VF v = load(d, x + i);
      sum = hn::MulAdd(v, v, sum);
    }
    if (i < end) {
      const VF v = load_tail(d, x + i, end - i);
      sum = hn::MulAdd(v, v, sum);
      i = end;
    }
    total += double{sum_of(d, sum)};
  }
  return total;
}

void scale(int64_t n, float factor, float* x) {
  map(n, x, x, [=](VF v) HWY_ATTR { return hn::Mul(v, hn::Set(DF(), factor)); });
}

void axpy(int64_t n, float factor, const float* x, float* y) {
  map(n, x, y, y, [=](VF a, VF b) HWY_ATTR { return hn::MulAdd(a, hn::Set(DF(), factor), b); });
}

// One vector of AdamW: updates w, m, v in place.
HWY_INLINE void adamw_step(DF d, const AdamW& o, VF g, VF& w, VF& m, VF& v) {
  g = hn::Mul(g, hn::Set(d, o.grad_scale));
  m = hn::MulAdd(hn::Set(d, o.beta1), m, hn::Mul(hn::Set(d, 1 - o.beta1), g));
  v = hn::MulAdd(hn::Set(d, o.beta2), v, hn::Mul(hn::Set(d, 1 - o.beta2), hn::Mul(g, g)));
  const VF root = hn::Sqrt(hn::Mul(v, hn::Set(d, 1 / o.bias2)));
  const VF step = hn::Div(hn::Mul(m, hn::Set(d, 1 / o.bias1)), hn::Add(root, hn::Set(d, o.epsilon)));
  w = hn::NegMulAdd(hn::Set(d, o.lr), hn::MulAdd(hn::Set(d, o.weight_decay), w, step), w);
}

void adamw(const AdamW& o, int64_t n, float* w, const float* g, float* m, float* v, BFloat16* shadow) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    VF wi = load(d, w + i), mi = load(d, m + i), vi = load(d, v + i);
    adamw_step(d, o, load(d, g + i), wi, mi, vi);
    store(d, wi, w + i);
    store(d, mi, m + i);
    store(d, vi, v + i);
    if (shadow) store(d, wi, shadow + i);
  }
  if (const int64_t rest = n - i; rest > 0) {
    VF wi = load_tail(d, w + i, rest), mi = load_tail(d, m + i, rest), vi = load_tail(d, v + i, rest);
    adamw_step(d, o, load_tail(d, g + i, rest), wi, mi, vi);
    store_tail(d, wi, w + i, rest);
    store_tail(d, mi, m + i, rest);
    store_tail(d, vi, v + i, rest);
    if (shadow) store_tail(d, wi, shadow + i, rest);
  }
}

void sgd(float lr, float grad_scale, int64_t n, float* w, const float* g, BFloat16* shadow) {
  const float factor = lr * grad_scale;
  map(n, w, g, w, [=](VF a, VF b) HWY_ATTR { return hn::NegMulAdd(hn::Set(DF(), factor), b, a); });
  if (shadow) from_f32(n, w, shadow);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

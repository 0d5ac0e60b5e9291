// Row-wise passes with a reduction over the row: residual + norm, cross-entropy.
#if defined(QKV_KERNELS_CPU_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_ROWS_INL_H
#undef QKV_KERNELS_CPU_ROWS_INL_H
#else
#define QKV_KERNELS_CPU_ROWS_INL_H
#endif

#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// Calls f(column, count) for each vector of a row, the last perhaps partial.
template <typename F>
HWY_INLINE void for_vectors(int64_t width, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t c = 0;
  for (; c + lanes <= width; c += lanes) f(c, lanes);
  if (c < width) f(c, width - c);
}
template <typename T>
void residual_norm(const ResidualNorm<T>& a) {
  const DF d;
  const DU du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint32_t threshold = dropout_threshold(a.dropout.p);
  const float keep_scale = 1 / (1 - a.dropout.p);
  std::vector<float> row(a.width + lanes);  // the row's sum in f32, as stored
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x + r * a.width;
    const T* branch = a.branch ? a.branch + r * a.width : nullptr;
    T* sum_out = a.sum ? a.sum + r * a.width : nullptr;
    const DropoutKey key = a.dropout.on() ? a.dropout.key.row(a.dropout.first_row + r) : DropoutKey{};
    const VU key_a = hn::Set(du, key.a), key_b = hn::Set(du, key.b);

    // pass 1: the sum, rounded to T as later passes will read it, and its mean
    VF total = hn::Zero(d);
    for_vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
      VF s = load_part(d, x + c, n);
      if (branch) {
        VF b = load_part(d, branch + c, n);
        if (a.dropout.on()) {
          const VU index = hn::Iota(du, static_cast<uint32_t>(c));
          b = drop(d, b, dropout_bits_of(du, key_a, key_b, index), threshold, keep_scale);
        }
        s = hn::Add(s, b);
        if constexpr (!std::is_same_v<T, float>) {
          alignas(64) T rounded[HWY_LANES(float)];
          store(d, s, rounded);
          s = load(d, rounded);
        }
      }
      if (sum_out) store_part(d, s, sum_out + c, n);
      store(d, s, row.data() + c);
      total = hn::Add(total, s);  // lanes beyond the row are zero
    });
    const float mean = a.beta ? sum_of(total) / static_cast<float>(a.width) : 0;

    // pass 2: the variance
    const VF vmean = hn::Set(d, mean);
    VF squares = hn::Zero(d);
    for_vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
      VF e = hn::Sub(load(d, row.data() + c), vmean);
      if (n < lanes) e = hn::IfThenElseZero(hn::FirstN(d, n), e);
      squares = hn::MulAdd(e, e, squares);
    });
    const float rstd = 1 / std::sqrt(sum_of(squares) / static_cast<float>(a.width) + a.epsilon);
    a.mean[r] = mean;
    a.rstd[r] = rstd;

    // pass 3: normalise
    const VF vrstd = hn::Set(d, rstd);
    for_vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
      const VF e = hn::Mul(hn::Sub(load(d, row.data() + c), vmean), vrstd);
      const VF shift = a.beta ? load_part(d, a.beta + c, n) : hn::Zero(d);
      store_part(d, hn::MulAdd(e, load_part(d, a.gamma + c, n), shift), a.y + r * a.width + c, n);
    });
  }
}

template <typename T>
void residual_norm_grad(const ResidualNormGrad<T>& a) {
  const DF d;
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* dy = a.dy + r * a.width;
    const T* s = a.sum + r * a.width;
    const VF mean = hn::Set(d, a.mean[r]), rstd = hn::Set(d, a.rstd[r]);

    // pass 1: mean(g), mean(g n), and the gradients of gamma and beta
    VF sum_g = hn::Zero(d), sum_gn = hn::Zero(d);
    for_vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
      const VF dyv = load_part(d, dy + c, n);  // zero beyond the row
      const VF norm = hn::Mul(hn::Sub(load_part(d, s + c, n), mean), rstd);
      const VF g = hn::Mul(dyv, load_part(d, a.gamma + c, n));
      sum_g = hn::Add(sum_g, g);
      sum_gn = hn::MulAdd(g, norm, sum_gn);
      store_part(d, hn::MulAdd(dyv, norm, load_part(d, a.dgamma + c, n)), a.dgamma + c, n);
      if (a.dbeta) store_part(d, hn::Add(dyv, load_part(d, a.dbeta + c, n)), a.dbeta + c, n);
    });
    const VF mean_g = hn::Set(d, a.dbeta ? sum_of(sum_g) / static_cast<float>(a.width) : 0);
    const VF mean_gn = hn::Set(d, sum_of(sum_gn) / static_cast<float>(a.width));

    // pass 2: d_sum
    for_vectors(a.width, [&](int64_t c, int64_t n) HWY_ATTR {
      const VF norm = hn::Mul(hn::Sub(load_part(d, s + c, n), mean), rstd);
      const VF g = hn::Mul(load_part(d, dy + c, n), load_part(d, a.gamma + c, n));
      VF out = hn::Mul(rstd, hn::NegMulAdd(norm, mean_gn, hn::Sub(g, mean_g)));
      if (a.dsum_in) out = hn::Add(out, load_part(d, a.dsum_in + r * a.width + c, n));
      store_part(d, out, a.dsum + r * a.width + c, n);
    });
  }
}

// The largest of n values, and the sum of exp(value - largest).
struct SumExp {
  float highest, sum;
};

inline SumExp sum_exp(int64_t n, const float* z) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VF top = hn::Set(d, -std::numeric_limits<float>::infinity());
  for_vectors(n, [&](int64_t c, int64_t count) HWY_ATTR {
    VF v = load_part(d, z + c, count);
    if (count < lanes) v = hn::IfThenElse(hn::FirstN(d, count), v, top);
    top = hn::Max(top, v);
  });
  const float highest = max_of(d, top);
  const VF shift = hn::Set(d, highest);
  VF total = hn::Zero(d);
  for_vectors(n, [&](int64_t c, int64_t count) HWY_ATTR {
    VF e = exponential(d, hn::Sub(load_part(d, z + c, count), shift));
    if (count < lanes) e = hn::IfThenElseZero(hn::FirstN(d, count), e);
    total = hn::Add(total, e);
  });
  return {highest, sum_of(total)};
}

inline double log_sum_exp(int64_t n, const float* z) {
  const auto [highest, sum] = sum_exp(n, z);
  return double{highest} + std::log(double{sum});
}

template <typename T>
void cross_entropy(const CrossEntropy<T>& a) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* z = a.logits + r * a.stride;
    T* dz = a.dlogits ? a.dlogits + r * a.stride : nullptr;
    if (a.target[r] == kIgnored) {
      a.losses[r] = 0;
      if (dz) std::memset(static_cast<void*>(dz), 0, a.stride * sizeof(T));
      continue;
    }
    const auto [highest, sum] = sum_exp(a.vocab, z);
    const VF shift = hn::Set(d, highest);
    const float z_target = z[a.target[r]];
    const float log_z = highest + std::log(sum);
    a.losses[r] = (1 - a.smoothing) * (log_z - z_target) + a.z_loss * log_z * log_z;
    if (a.smoothing > 0) {
      VF below = hn::Zero(d);  // sum of z - highest
      for_vectors(a.vocab, [&](int64_t c, int64_t n) HWY_ATTR {
        VF e = hn::Sub(load_part(d, z + c, n), shift);
        if (n < lanes) e = hn::IfThenElseZero(hn::FirstN(d, n), e);
        below = hn::Add(below, e);
      });
      a.losses[r] += a.smoothing * (std::log(sum) - sum_of(below) / static_cast<float>(a.vocab));
    }
    if (!dz) continue;
    const float p_scale = 1 + 2 * a.z_loss * log_z, q_rest = a.smoothing / static_cast<float>(a.vocab);
    const VF factor = hn::Set(d, a.scale * p_scale / sum), rest = hn::Set(d, a.scale * q_rest);
    for_vectors(a.vocab, [&](int64_t c, int64_t n) HWY_ATTR {
      const VF e = exponential(d, hn::Sub(load_part(d, z + c, n), shift));
      store_part(d, hn::MulSub(e, factor, rest), dz + c, n);
    });
    const float p = std::exp(z_target - highest) / sum;
    dz[a.target[r]] = T(a.scale * (p * p_scale - (q_rest + 1 - a.smoothing)));
    for (int64_t c = a.vocab; c < a.stride; ++c) dz[c] = T(0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

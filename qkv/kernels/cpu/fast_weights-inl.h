// Fast weights: a matrix of each head that each token changes (see kernels.h, and generic.cc for the
// equations).
#if defined(QKV_KERNELS_CPU_FAST_WEIGHTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_FAST_WEIGHTS_INL_H
#undef QKV_KERNELS_CPU_FAST_WEIGHTS_INL_H
#else
#define QKV_KERNELS_CPU_FAST_WEIGHTS_INL_H
#endif

#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// out[j] = sum_i x[i] S[i, j] for so many vectors of columns.
template <int kVectors>
HWY_INLINE void times_rows(const float* x, const float* state, int64_t rows, int64_t width, float* out) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  VF sum[kVectors];
  for (VF& s : sum) s = hn::Zero(d);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t n = 0; n < kVectors; ++n)
      sum[n] = hn::MulAdd(hn::Set(d, x[i]), hn::LoadU(d, state + i * width + n * kLanes), sum[n]);
  for (int64_t n = 0; n < kVectors; ++n) hn::StoreU(sum[n], d, out + n * kLanes);
}

// Calls f<kVectors>(first column) for columns [0, width), 4 or 1 vectors at a time.
template <typename F>
HWY_INLINE void for_blocks(int64_t width, const F& f) {
  constexpr int64_t kLanes = HWY_LANES(float);
  int64_t j = 0;
  for (; j + 4 * kLanes <= width; j += 4 * kLanes) f.template operator()<4>(j);
  for (; j < width; j += kLanes) f.template operator()<1>(j);
}

// A token of a block of columns.
template <bool kDecays, bool kDelta, int kVectors>
HWY_INLINE void next_state(const FastWeights& f, int64_t t, int64_t j, float* state, float* y, float* c) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  const float *q = f.q + t * f.d_k, *k = f.k + t * f.d_k;
  state += j;
  if constexpr (kDelta) times_rows<kVectors>(f.a + t * f.d_k, state, f.d_k, f.d_v, c + j);
  VF out[kVectors], v[kVectors], change[kVectors];
  for (int64_t n = 0; n < kVectors; ++n) {
    out[n] = hn::Zero(d);
    v[n] = hn::LoadU(d, f.v + t * f.d_v + j + n * kLanes);
    if constexpr (kDelta) change[n] = hn::LoadU(d, c + j + n * kLanes);
  }
  for (int64_t i = 0; i < f.d_k; ++i, state += f.d_v)
    for (int64_t n = 0; n < kVectors; ++n) {
      VF s = hn::LoadU(d, state + n * kLanes);
      if constexpr (kDecays) s = hn::Mul(hn::Set(d, f.w[t * f.d_k + i]), s);
      if constexpr (kDelta) s = hn::MulAdd(hn::Set(d, f.b[t * f.d_k + i]), change[n], s);
      s = hn::MulAdd(hn::Set(d, k[i]), v[n], s);
      hn::StoreU(s, d, state + n * kLanes);
      out[n] = hn::MulAdd(hn::Set(d, q[i]), s, out[n]);
    }
  for (int64_t n = 0; n < kVectors; ++n) hn::StoreU(out[n], d, y + t * f.d_v + j + n * kLanes);
}

template <bool kDecays, bool kDelta>
void fast_weights_of(const FastWeights& f, float* state, float* y, float* states, float* c) {
  const int64_t size = f.d_k * f.d_v;
  for (int64_t t = 0; t < f.tokens; ++t) {
    if (states) std::memcpy(states + t * size, state, size * sizeof(float));
    for_blocks(f.d_v, [&]<int kVectors>(int64_t j)
                          HWY_ATTR { next_state<kDecays, kDelta, kVectors>(f, t, j, state, y, c); });
  }
  if (states) std::memcpy(states + f.tokens * size, state, size * sizeof(float));
}

void fast_weights(const FastWeights& f, float* state, float* y, float* states, float* c) {
  if (f.a)
    f.w ? fast_weights_of<true, true>(f, state, y, states, c)
        : fast_weights_of<false, true>(f, state, y, states, c);
  else
    f.w ? fast_weights_of<true, false>(f, state, y, states, c)
        : fast_weights_of<false, false>(f, state, y, states, c);
}

// The sums along rows of a vector's number of rows, each the sum of so many vectors that were multiplied.
struct RowSums {
  VF rows[HWY_LANES(float)];
  void store(float* out) {
    sums_of(rows);
    hn::StoreU(rows[0], DF(), out);
  }
};

// Token t in turn: all that goes along rows of S waits for all columns, so rows are outside.
template <bool kDecays, bool kDelta>
void fast_weights_grad_of(const FastWeightsGrad& g) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  const FastWeights& f = g.forward;
  const int64_t width = f.d_v;
  float *c = g.memory, *dc = c + width;
  for (int64_t t = f.tokens - 1; t >= 0; --t) {
    const float *before = g.states + t * f.d_k * width, *after = before + f.d_k * width,
                *dy = g.dy + t * width, *v = f.v + t * width;
    float* dv = g.dv + t * width;
    std::memset(dv, 0, width * sizeof(float));
    if constexpr (kDelta) {
      std::memset(dc, 0, width * sizeof(float));
      for_blocks(width, [&]<int kVectors>(int64_t j) HWY_ATTR {
        times_rows<kVectors>(f.a + t * f.d_k, before + j, f.d_k, width, c + j);
      });
    }
    for (int64_t i0 = 0; i0 < f.d_k; i0 += kLanes) {
      RowSums dq, dk, dw, db;
      for (int64_t i = 0; i < kLanes; ++i) {
        const int64_t row = i0 + i, at = t * f.d_k + row;
        const VF q = hn::Set(d, f.q[at]), k = hn::Set(d, f.k[at]);
        VF sum_q = hn::Zero(d), sum_k = sum_q, sum_w = sum_q, sum_b = sum_q;
        for (int64_t j = 0; j < width; j += kLanes) {
          float* const s = g.state + row * width + j;
          const VF dy_j = hn::LoadU(d, dy + j), now = hn::MulAdd(q, dy_j, hn::LoadU(d, s));
          sum_q = hn::MulAdd(hn::LoadU(d, after + row * width + j), dy_j, sum_q);
          sum_k = hn::MulAdd(now, hn::LoadU(d, v + j), sum_k);
          hn::StoreU(hn::MulAdd(now, k, hn::LoadU(d, dv + j)), d, dv + j);
          if constexpr (kDelta) {
            sum_b = hn::MulAdd(now, hn::LoadU(d, c + j), sum_b);
            hn::StoreU(hn::MulAdd(now, hn::Set(d, f.b[at]), hn::LoadU(d, dc + j)), d, dc + j);
          }
          if constexpr (kDecays) {
            sum_w = hn::MulAdd(now, hn::LoadU(d, before + row * width + j), sum_w);
            hn::StoreU(hn::Mul(hn::Set(d, f.w[at]), now), d, s);
          } else {
            hn::StoreU(now, d, s);
          }
        }
        dq.rows[i] = sum_q;
        dk.rows[i] = sum_k;
        if constexpr (kDecays) dw.rows[i] = sum_w;
        if constexpr (kDelta) db.rows[i] = sum_b;
      }
      const int64_t at = t * f.d_k + i0;
      dq.store(g.dq + at);
      dk.store(g.dk + at);
      if constexpr (kDecays) dw.store(g.dw + at);
      if constexpr (kDelta) db.store(g.db + at);
    }
    if constexpr (kDelta)
      for (int64_t i0 = 0; i0 < f.d_k; i0 += kLanes) {
        RowSums da;
        for (int64_t i = 0; i < kLanes; ++i) {
          const int64_t row = i0 + i;
          const VF a = hn::Set(d, f.a[t * f.d_k + row]);
          VF sum = hn::Zero(d);
          for (int64_t j = 0; j < width; j += kLanes) {
            float* const s = g.state + row * width + j;
            const VF dc_j = hn::LoadU(d, dc + j);
            sum = hn::MulAdd(hn::LoadU(d, before + row * width + j), dc_j, sum);
            hn::StoreU(hn::MulAdd(a, dc_j, hn::LoadU(d, s)), d, s);
          }
          da.rows[i] = sum;
        }
        da.store(g.da + t * f.d_k + i0);
      }
  }
}

void fast_weights_grad(const FastWeightsGrad& g) {
  if (g.forward.a)
    g.forward.w ? fast_weights_grad_of<true, true>(g) : fast_weights_grad_of<false, true>(g);
  else
    g.forward.w ? fast_weights_grad_of<true, false>(g) : fast_weights_grad_of<false, false>(g);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

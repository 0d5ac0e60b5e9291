// Building blocks of the SIMD kernels: loads and stores of f32 and bf16 as f32 vectors, maps over arrays,
// reductions. Compiled once per instruction set (see simd.cc).
#if defined(QKV_KERNELS_CPU_SIMD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_SIMD_INL_H
#undef QKV_KERNELS_CPU_SIMD_INL_H
#else
#define QKV_KERNELS_CPU_SIMD_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

HWY_INLINE VF load(DF d, const float* p) {
  return hn::LoadU(d, p);
}
HWY_INLINE VF load(DF d, const BFloat16* p) {
  const hn::Rebind<uint16_t, DF> half;
  const auto bits = hn::LoadU(half, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(DU(), bits)));
}

HWY_INLINE VF load(DF d, const Float16* p) {
  const hn::Rebind<hwy::float16_t, DF> half;
  return hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(p)));
}

HWY_INLINE void store(DF d, VF v, float* p) {
  hn::StoreU(v, d, p);
}
HWY_INLINE void store(DF, VF v,
                      BFloat16* p) {  // to nearest, ties to even; NaN keeps its sign and payload, quieted
  const DU du;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint16_t, DF> half;
  const VU u = hn::BitCast(du, v);
  const VU odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1));
  const VU rounded = hn::Add(u, hn::Add(odd, hn::Set(du, 0x7FFF)));
  const VU bits =
      hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Or(u, hn::Set(du, 0x00400000)), rounded);
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, hn::ShiftRight<16>(bits))), half,
             reinterpret_cast<uint16_t*>(p));
}

HWY_INLINE int64_t padded(int64_t n) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  return (n + lanes - 1) / lanes * lanes;
}

// Load or store the first n elements, fewer than a vector has. A load fills the rest with zeros; a store
// leaves the rest alone.
template <typename T>
HWY_INLINE VF load_tail(DF d, const T* p, size_t n) {
  alignas(64) T buffer[HWY_LANES(float)] = {};
  std::memcpy(buffer, p, n * sizeof(T));
  return load(d, buffer);
}
template <typename T>
HWY_INLINE void store_tail(DF d, VF v, T* p, size_t n) {
  alignas(64) T buffer[HWY_LANES(float)];
  store(d, v, buffer);
  std::memcpy(p, buffer, n * sizeof(T));
}

// f32 has instructions for it: the others would wait for what they have just written to the buffer.
HWY_INLINE VF load_tail(DF d, const float* p, size_t n) {
  return hn::MaskedLoad(hn::FirstN(d, n), d, p);
}
HWY_INLINE void store_tail(DF d, VF v, float* p, size_t n) {
  hn::BlendedStore(v, hn::FirstN(d, n), d, p);
}

// Load or store n elements, at most a vector.
template <typename T>
HWY_INLINE VF load_part(DF d, const T* p, int64_t n) {
  return n == static_cast<int64_t>(hn::Lanes(d)) ? load(d, p) : load_tail(d, p, n);
}
template <typename T>
HWY_INLINE void store_part(DF d, VF v, T* p, int64_t n) {
  if (n == static_cast<int64_t>(hn::Lanes(d))) return store(d, v, p);
  store_tail(d, v, p, n);
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Rows and columns of 8 x 8 lanes change places.
HWY_INLINE void transpose(__m256i (&v)[8]) {
  __m256i pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      fours[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
      fours[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
    }
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(fours[i], fours[i + 4], 0x31);
  }
}
#endif
#if HWY_TARGET == HWY_AVX3
// Transposes x[16][16]: interleaves rows i and i + 8 four times (see tile/pack-inl.h).
HWY_INLINE void transpose(VU (&x)[16]) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  for (int turn = 0; turn < 4; ++turn) {
    VU turned[16];
    for (int i = 0; i < 8; ++i) {
      turned[2 * i] = VU{_mm512_permutex2var_epi32(x[i].raw, low, x[i + 8].raw)};
      turned[2 * i + 1] = VU{_mm512_permutex2var_epi32(x[i].raw, high, x[i + 8].raw)};
    }
    for (int i = 0; i < 16; ++i) x[i] = turned[i];
  }
}
#endif
// The same for a square of a vector's lanes.
HWY_INLINE void transpose(VF (&x)[HWY_LANES(float)]) {
#if HWY_TARGET == HWY_AVX3
  VU bits[16];
  for (int i = 0; i < 16; ++i) bits[i] = hn::BitCast(DU(), x[i]);
  transpose(bits);
  for (int i = 0; i < 16; ++i) x[i] = hn::BitCast(DF(), bits[i]);
#elif HWY_TARGET == HWY_AVX2
  __m256i bits[8];
  for (int i = 0; i < 8; ++i) bits[i] = _mm256_castps_si256(x[i].raw);
  transpose(bits);
  for (int i = 0; i < 8; ++i) x[i] = VF{_mm256_castsi256_ps(bits[i])};
#else
  constexpr int kLanes = HWY_LANES(float);
  float from[kLanes][kLanes], to[kLanes];
  for (int i = 0; i < kLanes; ++i) hn::StoreU(x[i], DF(), from[i]);
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < kLanes; ++j) to[j] = from[j][i];
    x[i] = hn::LoadU(DF(), to);
  }
#endif
}

// Elements [c, c + n) of as many rows as a vector has lanes, one vector for each column.
template <typename T>
HWY_INLINE void load_columns(const T* const (&rows)[HWY_LANES(float)], int64_t c, int64_t n,
                             VF (&out)[HWY_LANES(float)]) {
  for (int64_t i = 0; i < HWY_LANES(float); ++i) out[i] = load_part(DF(), rows[i] + c, n);
  transpose(out);
}
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// The same for n <= 4. Block g of a vector takes row 4 g + r; then each block is transposed.
HWY_INLINE void load_columns(const float* const (&rows)[HWY_LANES(float)], int64_t c, int64_t n,
                             VF (&out)[4]) {
  const __m128i first = _mm_cmpgt_epi32(_mm_set1_epi32(static_cast<int>(n)), _mm_setr_epi32(0, 1, 2, 3));
  const auto block = [&](int64_t row) HWY_ATTR {
    return n == 4 ? _mm_loadu_ps(rows[row] + c) : _mm_maskload_ps(rows[row] + c, first);
  };
  VF x[4];
  for (int r = 0; r < 4; ++r) {
    const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(block(r)), block(4 + r), 1);
#if HWY_TARGET == HWY_AVX3
    const __m512 three = _mm512_insertf32x4(_mm512_castps256_ps512(low), block(8 + r), 2);
    x[r] = VF{_mm512_insertf32x4(three, block(12 + r), 3)};
#else
    x[r] = VF{low};
#endif
  }
  const DF d;
  const hn::Repartition<double, DF> pairs;
  const auto joined_low = [&](VF a, VF b) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  const auto joined_high = [&](VF a, VF b) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b)));
  };
  const VF low01 = hn::InterleaveLower(d, x[0], x[1]), high01 = hn::InterleaveUpper(d, x[0], x[1]),
           low23 = hn::InterleaveLower(d, x[2], x[3]), high23 = hn::InterleaveUpper(d, x[2], x[3]);
  out[0] = joined_low(low01, low23);
  out[1] = joined_high(low01, low23);
  out[2] = joined_low(high01, high23);
  out[3] = joined_high(high01, high23);
}
#elif HWY_TARGET == HWY_SCALAR
HWY_INLINE void load_columns(const float* const (&rows)[1], int64_t c, int64_t n, VF (&out)[4]) {
  for (int64_t i = 0; i < n; ++i) out[i] = hn::Set(DF(), rows[0][c + i]);
}
#endif

// exchanged<n>: the halves of each block of n lanes change places. mixed<n>: the first half of each block is
// x's, the second y's.
#if HWY_TARGET == HWY_AVX3
template <int n>
HWY_INLINE VF exchanged(VF x) {
  if constexpr (n == 16) return VF{_mm512_shuffle_f32x4(x.raw, x.raw, 0x4E)};
  if constexpr (n == 8) return VF{_mm512_shuffle_f32x4(x.raw, x.raw, 0xB1)};
  return VF{_mm512_permute_ps(x.raw, n == 4 ? 0x4E : 0xB1)};
}
template <int n>
HWY_INLINE VF mixed(VF x, VF y) {
  constexpr __mmask16 kSecond = n == 16 ? 0xFF00 : n == 8 ? 0xF0F0 : n == 4 ? 0xCCCC : 0xAAAA;
  return VF{_mm512_mask_blend_ps(kSecond, x.raw, y.raw)};
}
#elif HWY_TARGET == HWY_AVX2
template <int n>
HWY_INLINE VF exchanged(VF x) {
  if constexpr (n == 8) return VF{_mm256_permute2f128_ps(x.raw, x.raw, 0x01)};
  return VF{_mm256_permute_ps(x.raw, n == 4 ? 0x4E : 0xB1)};
}
template <int n>
HWY_INLINE VF mixed(VF x, VF y) {
  return VF{_mm256_blend_ps(x.raw, y.raw, n == 8 ? 0xF0 : n == 4 ? 0xCC : 0xAA)};
}
#else
template <int n>
HWY_INLINE VF exchanged(VF x) {
  constexpr int kLanes = HWY_LANES(float);
  float from[kLanes], to[kLanes];
  hn::StoreU(x, DF(), from);
  for (int i = 0; i < kLanes; ++i) to[i] = from[i ^ (n / 2)];
  return hn::LoadU(DF(), to);
}
template <int n>
HWY_INLINE VF mixed(VF x, VF y) {
  constexpr int kLanes = HWY_LANES(float);
  float to[kLanes], second[kLanes];
  hn::StoreU(x, DF(), to);
  hn::StoreU(y, DF(), second);
  for (int i = 0; i < kLanes; ++i)
    if (i & (n / 2)) to[i] = second[i];
  return hn::LoadU(DF(), to);
}
#endif

// The sum of all lanes: halves are added until one is left.
template <int n = HWY_LANES(float)>
HWY_INLINE float sum_of(VF x) {
  if constexpr (n < 2)
    return hn::GetLane(x);
  else
    return sum_of<n / 2>(hn::Add(x, exchanged<n>(x)));
}
// The same of as many vectors as each has lanes, one in each lane of x[0].
template <int n = HWY_LANES(float)>
HWY_INLINE void sums_of(VF (&x)[HWY_LANES(float)]) {
  if constexpr (n >= 2) {
    for (int i = 0; i < n / 2; ++i) {
      const VF y = x[i + n / 2];
      x[i] = hn::Add(mixed<n>(x[i], y), exchanged<n>(mixed<n>(y, x[i])));
    }
    sums_of<n / 2>(x);
  }
}

// out[i] = f(x[i]) and out[i] = f(x[i], y[i]), a vector at a time.
template <typename X, typename O, typename F>
HWY_INLINE void map(int64_t n, const X* x, O* out, const F& f) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, f(load(d, x + i)), out + i);
  if (i < n) store_tail(d, f(load_tail(d, x + i, n - i)), out + i, n - i);
}
template <typename X, typename Y, typename O, typename F>
HWY_INLINE void map(int64_t n, const X* x, const Y* y, O* out, const F& f) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, f(load(d, x + i), load(d, y + i)), out + i);
  if (i < n) store_tail(d, f(load_tail(d, x + i, n - i), load_tail(d, y + i, n - i)), out + i, n - i);
}

HWY_INLINE float max_of(DF d, VF v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

// exp(x) with a relative error of 2e-7; exp(88) beyond 88, 0 below 2^-126. Computed as 2^n exp(r), with n
// the nearest integer to x / log 2, log 2 subtracted in two parts, and Moshier's polynomial (Cephes, expf)
// for r.
HWY_INLINE VF exponential(DF d, VF x) {
  const hn::RebindToSigned<DF> di;
  const VF bounded = hn::Min(hn::Set(d, 88.0f), x);  // in this order, NaN stays
  const VF n = hn::Round(hn::Mul(bounded, hn::Set(d, 1.44269504f)));
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), bounded);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  VF p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  const auto scaled = hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::ConvertTo(di, n)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365f)), hn::BitCast(d, scaled));  // 2^-126
}

// 1 / x with a relative error of 2e-7, for 2^-126 <= x < infinity. An estimate and one Newton step take
// half the time of a division.
HWY_INLINE VF reciprocal(DF d, VF x) {
  const VF estimate = hn::ApproximateReciprocal(x);
  return hn::Mul(estimate, hn::NegMulAdd(x, estimate, hn::Set(d, 2.0f)));
}

// dropout_bits() of base/rng.h, with keys per lane.
HWY_INLINE VU dropout_bits_of(DU du, VU key_a, VU key_b, VU index) {
  VU h = hn::Mul(hn::Xor(index, key_a), hn::Set(du, 0x9E3779B1u));
  h = hn::Xor(h, hn::ShiftRight<16>(h));
  h = hn::Add(hn::Mul(h, hn::Set(du, 0x85EBCA6Bu)), key_b);
  h = hn::Xor(h, hn::ShiftRight<13>(h));
  h = hn::Mul(h, hn::Set(du, 0xC2B2AE35u));
  return hn::Xor(h, hn::ShiftRight<16>(h));
}

// Returns v / (1 - p) for kept elements, else 0.
HWY_INLINE VF drop(DF d, VF v, VU bits, uint32_t threshold, float keep_scale) {
  const DU du;
  // Unsigned comparison: bits >= threshold exactly if max(bits, threshold) == bits.
  const auto kept = hn::Eq(hn::Max(bits, hn::Set(du, threshold)), bits);
  return hn::IfThenElseZero(hn::RebindMask(d, kept), hn::Mul(v, hn::Set(d, keep_scale)));
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

// Quantised blocks in vectors of AVX2, which AVX-512's code uses, too: their bytes, scales and factors.
#if defined(QKV_KERNELS_CPU_QUANTIZED_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_QUANTIZED_BLOCKS_INL_H
#undef QKV_KERNELS_CPU_QUANTIZED_BLOCKS_INL_H
#else
#define QKV_KERNELS_CPU_QUANTIZED_BLOCKS_INL_H
#endif

#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// Eight sums at a time: those of eight rows of B.
using D8F = hn::CappedTag<float, 8>;
using D8I = hn::CappedTag<int32_t, 8>;
using V8I = hn::Vec<D8I>;

HWY_INLINE __m256i load_256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
HWY_INLINE __m128i load_128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// AVX-512's VNNI, which compilers only offer to whole functions: products of four neighbouring bytes, where
// those of `a` have no sign, or of two 16-bit numbers, added to lanes of 32 bits.
template <typename V>
HWY_INLINE V vnni_fours(V sum, V a, V b) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
template <typename V>
HWY_INLINE V vnni_pairs(V sum, V a, V b) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}

HWY_INLINE __m256i low_nibbles(__m256i v) {
  return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
HWY_INLINE __m256i high_nibbles(__m256i v) {
  return low_nibbles(_mm256_srli_epi16(v, 4));
}
// The 16 bytes of two rows.
HWY_INLINE __m256i both(const uint8_t* p, const uint8_t* q) {
  return _mm256_set_m128i(load_128(q), load_128(p));
}
// The 32 numbers of a block's 16 bytes.
HWY_INLINE __m256i nibbles(const uint8_t* bytes) {
  const __m128i v = load_128(bytes);
  return low_nibbles(_mm256_set_m128i(_mm_srli_epi16(v, 4), v));
}

// Eight scales and eight minima of a q4_k or q5_k block in each half.
template <typename Block>
HWY_INLINE __m256i scales_and_minima(const Block& b, const Block& next) {
  const __m256i packed = both(b.scales, next.scales);
  const __m256i low =
      _mm256_shuffle_epi8(packed, _mm256_setr_epi32(0x03020100, 0x0B0A0908, 0x07060504, 0x0B0A0908,
                                                    0x03020100, 0x0B0A0908, 0x07060504, 0x0B0A0908));
  const __m256i high = _mm256_shuffle_epi32(packed, 0x50);  // lanes 0, 0, 1, 1
  const __m256i shift = _mm256_setr_epi32(0, 0, 0, 4, 0, 0, 0, 4),
                few = _mm256_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F,
                                        0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F),
                top = _mm256_setr_epi32(0, 0x30303030, 0, 0x30303030, 0, 0x30303030, 0, 0x30303030);
  return _mm256_or_si256(_mm256_and_si256(_mm256_srlv_epi32(low, shift), few),
                         _mm256_and_si256(_mm256_srli_epi32(high, 2), top));
}

// Elements [64 run, 64 run + 32) of a q4_k or q5_k block; or, if `high`, the 32 after them.
HWY_INLINE __m256i numbers_of_32(const BlockQ4K& b, int run, bool high) {
  const __m256i q = load_256(b.qs + 32 * run);
  return high ? high_nibbles(q) : low_nibbles(q);
}
HWY_INLINE __m256i numbers_of_32(const BlockQ5K& b, int run, bool high) {
  const __m256i q = load_256(b.qs + 32 * run), fifth = load_256(b.qh), bit = _mm256_set1_epi8(16);
  const int at = 2 * run + (high ? 1 : 0);  // the bit of qh, which becomes bit 4
  const __m256i moved = at < 4 ? _mm256_slli_epi16(fifth, 4 - at) : _mm256_srli_epi16(fifth, at - 4);
  return _mm256_or_si256(high ? high_nibbles(q) : low_nibbles(q), _mm256_and_si256(moved, bit));
}

// Elements [32 plane, 32 plane + 32) of half `run` of a q6_k block, 32 larger than they are.
HWY_INLINE __m256i six_bits(const BlockQ6K& b, int run, int plane) {
  const __m256i low = load_256(b.ql + 64 * run + 32 * (plane % 2)), high = load_256(b.qh + 32 * run);
  const __m256i shifted = plane == 0   ? _mm256_slli_epi16(high, 4)
                          : plane == 1 ? _mm256_slli_epi16(high, 2)
                          : plane == 2 ? high
                                       : _mm256_srli_epi16(high, 2);
  return _mm256_or_si256(plane < 2 ? low_nibbles(low) : high_nibbles(low),
                         _mm256_and_si256(shifted, _mm256_set1_epi8(0x30)));
}

// One f16 field of eight blocks.
template <typename Block>
HWY_INLINE hn::Vec<D8F> factors(const Block* const* row, Float16 Block::*of) {
  const hn::Rebind<hwy::float16_t, D8F> d;
  // Halves that go through memory would wait for the slowest store.
  const auto four = [&](int first) HWY_ATTR {
    uint64_t halves = 0;
    for (int r = 3; r >= 0; --r) halves = halves << 16 | (row[first + r]->*of).bits;
    return static_cast<int64_t>(halves);
  };
  const auto halves = hn::Vec<hn::Rebind<uint16_t, D8F>>{_mm_set_epi64x(four(4), four(0))};
  return hn::PromoteTo(D8F(), hn::BitCast(d, halves));
}
HWY_INLINE hn::Vec<D8F> scales_of(const BlockMxfp4* const* row) {
  const auto scale = [&](int r) HWY_ATTR { return mxfp4_scale(row[r]->e); };
  return hn::Vec<D8F>{
      _mm256_setr_ps(scale(0), scale(1), scale(2), scale(3), scale(4), scale(5), scale(6), scale(7))};
}
template <typename Block>
HWY_INLINE hn::Vec<D8F> scales_of(const Block* const* row) {
  return factors(row, &Block::d);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

// Products by quantised weights, on x86 with AVX2. Products of integers and the sum of each pair are one
// instruction, and exact. Sums of a block become f32 only when they are whole, as quantized_product.h says.
#if defined(QKV_KERNELS_CPU_QUANTIZED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_QUANTIZED_INL_H
#undef QKV_KERNELS_CPU_QUANTIZED_INL_H
#else
#define QKV_KERNELS_CPU_QUANTIZED_INL_H
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "qkv/kernels/kernels.h"
#include "qkv/kernels/quantized_kernels.h"
#include "qkv/kernels/tile/block.h"
#include "qkv/kernels/tile/groups.h"
#include "qkv/kernels/tile_product.h"
#include "qkv/quant/block_integers.h"
#include "qkv/quant/blocks.h"
// Highway asks for this order.
#include "qkv/kernels/cpu/quantized_panel-inl.h"
#include "qkv/kernels/cpu/quantized_vnni-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

using D16 = hn::CappedTag<int16_t, 16>;
using V16 = hn::Vec<D16>;

HWY_INLINE V16 load_16(const int16_t* p) {
  return hn::LoadU(D16(), p);
}
HWY_INLINE V8I times(V16 w, const int16_t* x) {
  return pair_products(D8I(), w, load_16(x));
}
// Bytes by bytes, summed over pairs: one side has no sign. Sums of two products stay below 2^15: at most 127
// * 128 * 2.
HWY_INLINE __m256i pairs_of_bytes(__m256i unsigned_bytes, __m256i signed_bytes) {
  return _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
}
// Sixteen bytes in both halves.
HWY_INLINE __m256i twice(const int8_t* p) {
  return _mm256_broadcastsi128_si256(load_128(p));
}
// Sums of neighbouring lanes: those of a and b by turns of 64 bits.
HWY_INLINE __m256i neighbours(__m256i a, __m256i b) {
  const __m256 x = _mm256_castsi256_ps(a), y = _mm256_castsi256_ps(b);
  return _mm256_add_epi32(_mm256_castps_si256(_mm256_shuffle_ps(x, y, 0x88)),
                          _mm256_castps_si256(_mm256_shuffle_ps(x, y, 0xDD)));
}
// The sum of both halves of a in the lower half, and that of b in the upper one.
HWY_INLINE __m256i folded(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
}

// How two blocks are read where B is read once, one each of two neighbouring rows. products(): the sums of w
// x of the first row, in four parts, in the lower half, those of the second in the upper half. minima(): the
// same of u x.
template <WeightType>
struct Rows;

template <>
struct Rows<WeightType::q8_0> {
  using Block = BlockQ80;
  static HWY_INLINE __m256i products(const Block& b, const Block& next, const int8_t* x, const int16_t*) {
    const __m256i a = load_256(x);
    const auto sums = [&](const Block& block) HWY_ATTR {
      const __m256i w = load_256(block.qs);
      return _mm256_madd_epi16(pairs_of_bytes(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w)),
                               _mm256_set1_epi16(1));
    };
    return folded(sums(b), sums(next));
  }
};

template <>
struct Rows<WeightType::q4_0> {
  using Block = BlockQ40;
  static constexpr int kOffset = 8;
  static HWY_INLINE __m256i products(const Block& b, const Block& next, const int8_t* x, const int16_t*) {
    const __m256i q = both(b.qs, next.qs);
    return _mm256_madd_epi16(_mm256_add_epi16(pairs_of_bytes(low_nibbles(q), twice(x)),
                                              pairs_of_bytes(high_nibbles(q), twice(x + 16))),
                             _mm256_set1_epi16(1));
  }
};

template <>
struct Rows<WeightType::mxfp4> {
  using Block = BlockMxfp4;
  static HWY_INLINE __m256i products(const Block& b, const Block& next, const int8_t* x, const int16_t*) {
    const __m256i q = both(b.qs, next.qs), low = twice(x), high = twice(x + 16), table = twice(kMxfp4Values);
    const __m256i first = _mm256_sign_epi8(_mm256_shuffle_epi8(table, low_nibbles(q)), low),
                  second = _mm256_sign_epi8(_mm256_shuffle_epi8(table, high_nibbles(q)), high);
    return _mm256_madd_epi16(_mm256_add_epi16(pairs_of_bytes(_mm256_abs_epi8(low), first),
                                              pairs_of_bytes(_mm256_abs_epi8(high), second)),
                             _mm256_set1_epi16(1));
  }
};

template <class Block_>
struct RowsWithMinima {
  using Block = Block_;
  static HWY_INLINE __m256i products(const Block& b, const Block& next, const int8_t* x, const int16_t*) {
    const __m256i both_scales = scales_and_minima(b, next);
    const __m256i scales[2] = {_mm256_permute4x64_epi64(both_scales, 0x44),
                               _mm256_permute4x64_epi64(both_scales, 0xEE)};
    const Block* const blocks[2] = {&b, &next};
    __m256i sums[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int run = 0; run < 4; ++run) {
      const auto scale_index = [](int g)
                                   HWY_ATTR { return _mm256_set1_epi16(static_cast<int16_t>(0x8000 | g)); };
      const __m256i x_low = load_256(x + 64 * run), x_high = load_256(x + 64 * run + 32),
                    low_scale = scale_index(2 * run), high_scale = scale_index(2 * run + 1);
      for (int r = 0; r < 2; ++r) {
        const __m256i low = _mm256_madd_epi16(pairs_of_bytes(numbers_of_32(*blocks[r], run, false), x_low),
                                              _mm256_shuffle_epi8(scales[r], low_scale)),
                      high = _mm256_madd_epi16(pairs_of_bytes(numbers_of_32(*blocks[r], run, true), x_high),
                                               _mm256_shuffle_epi8(scales[r], high_scale));
        sums[r] = _mm256_add_epi32(_mm256_add_epi32(sums[r], low), high);
      }
    }
    return folded(sums[0], sums[1]);
  }
  static HWY_INLINE __m256i minima(const Block& b, const Block& next, const int16_t* sums) {
    // Sums of 32 activations, which 16 bits hold, in both halves.
    const __m256i of_32 = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(_mm256_madd_epi16(load_256(sums), _mm256_set1_epi16(1)), _mm256_setzero_si256()),
        0x88);
    return _mm256_madd_epi16(_mm256_unpackhi_epi8(scales_and_minima(b, next), _mm256_setzero_si256()), of_32);
  }
};

template <>
struct Rows<WeightType::q4_k> : RowsWithMinima<BlockQ4K> {};
template <>
struct Rows<WeightType::q5_k> : RowsWithMinima<BlockQ5K> {};

template <>
struct Rows<WeightType::q6_k> {
  using Block = BlockQ6K;
  static HWY_INLINE __m256i products(const Block& b, const Block& next, const int8_t* x,
                                     const int16_t* all_sums) {
    const Block* const blocks[2] = {&b, &next};
    const __m256i scales[2] = {_mm256_cvtepi8_epi16(load_128(b.scales)),
                               _mm256_cvtepi8_epi16(load_128(next.scales))};
    __m256i sums[2], offsets[2];
    for (int r = 0; r < 2; ++r) {
      offsets[r] = _mm256_madd_epi16(scales[r], load_256(all_sums));
      sums[r] = _mm256_setzero_si256();
    }
    for (int run = 0; run < 2; ++run) {
      // The scales of 16 elements in each half.
      __m256i of_run[2];
      for (int r = 0; r < 2; ++r)
        of_run[r] =
            run == 0 ? _mm256_permute4x64_epi64(scales[r], 0x44) : _mm256_permute4x64_epi64(scales[r], 0xEE);
      for (int plane = 0; plane < 4; ++plane) {
        const int first = 4 * plane, second = first + 2;  // bytes of the two scales
        const auto index = [](int at) { return static_cast<int16_t>((at + 1) << 8 | at); };
        const __m256i two_scales =
                          _mm256_set_m128i(_mm_set1_epi16(index(second)), _mm_set1_epi16(index(first))),
                      a = load_256(x + 128 * run + 32 * plane);
        for (int r = 0; r < 2; ++r)
          sums[r] =
              _mm256_add_epi32(sums[r], _mm256_madd_epi16(pairs_of_bytes(six_bits(*blocks[r], run, plane), a),
                                                          _mm256_shuffle_epi8(of_run[r], two_scales)));
      }
    }
    // Every number is 32 too large.
    return _mm256_sub_epi32(folded(sums[0], sums[1]), _mm256_slli_epi32(folded(offsets[0], offsets[1]), 5));
  }
};

// Eight rows of B by one row of A. Memory is read from front to back, two rows side by side, which is faster
// than eight: sums of integers wait until those of eight rows become one vector.
template <WeightType kType>
class EightRows {
 public:
  using B = Rows<kType>;
  using Block = typename B::Block;

  EightRows(const QuantizedRows& a, int64_t row)
      : x_(a.bytes + row * a.stride),
        sums_(a.sums + row * (a.k / kMinimumGroup)),
        e_(a.e + row * (a.k / kElements)),
        blocks_(a.k / kElements),
        ahead_((kAhead + 2 * blocks_ * kBytes - 1) / (2 * blocks_ * kBytes) * 2 * blocks_ * kBytes) {}

  // y[j] for rows j < count of B.
  void dots(const MatrixView& b, int64_t count, float* y) {
    const int64_t row_bytes = blocks_ * kBytes;
    for (int64_t j = 0; j < count; j += 8) {
      const Block* row[8];
      for (int64_t i = 0; i < 8; ++i)
        row[i] = reinterpret_cast<const Block*>(static_cast<const std::byte*>(b.data) +
                                                std::min(j + i, count - 1) * row_bytes);
      float all[8];
      dots_of(row, all);
      std::copy_n(all, std::min<int64_t>(8, count - j), y + j);
    }
  }

 private:
  HWY_INLINE void dots_of(const Block* const (&row)[8], float* y) {
    const D8F d;
    auto sum = hn::Zero(d);
    for (int64_t begin = 0; begin < blocks_; begin += kChunk) {
      const int64_t count = std::min(kChunk, blocks_ - begin);
      for (int64_t j = 0; j < 4; ++j) read(row[2 * j] + begin, row[2 * j + 1] + begin, j, begin, count);
      for (int64_t i = 0; i < count; ++i) {
        const auto e = hn::Set(d, e_[begin + i]);
        V8I dots = whole(products_[i]);
        if constexpr (requires { B::kOffset; }) {  // products() took numbers that are so much too large
          const int16_t* sums = sums_ + (begin + i) * 2;
          dots = hn::Sub(dots, hn::Set(D8I(), B::kOffset * (sums[0] + sums[1])));
        }
        sum = hn::MulAdd(hn::Mul(factors(i, 0), e), hn::ConvertTo(d, dots), sum);
        if constexpr (has_minima(kType))
          sum = hn::MulAdd(hn::Mul(hn::Neg(factors(i, 1)), e), hn::ConvertTo(d, whole(minima_[i])), sum);
      }
    }
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_ps(y, _mm256_permutevar8x32_ps(sum.raw, order));
  }

  static constexpr int64_t kElements = layout_of(kType).elements, kBytes = layout_of(kType).bytes;
  static constexpr int64_t kChunk = kElements == 32 ? 64 : 32;  // blocks
  static constexpr int64_t kAhead = 2048;                       // bytes to prefetch ahead, at least
  static constexpr int kFields = has_minima(kType) ? 2 : 1;

  // Blocks of rows 2 j and 2 j + 1.
  HWY_INLINE void read(const Block* b, const Block* next, int64_t j, int64_t begin, int64_t count) {
    for (int64_t i = 0; i < count; ++i, ++b, ++next) {
      for (const Block* block : {b, next})
        for (int64_t line = 0; line < kBytes; line += 64)
          __builtin_prefetch(reinterpret_cast<const char*>(block) + ahead_ + line);
      const int16_t* sums = sums_ + (begin + i) * (kElements / kMinimumGroup);
      products_[i][j] = B::products(*b, *next, x_ + (begin + i) * kElements, sums);
      if constexpr (has_minima(kType)) minima_[i][j] = B::minima(*b, *next, sums);
      keep(*b, i, j);
      keep(*next, i, j + 4);
    }
  }
  // Lane 0 to 3 are the sums of rows 0, 2, 4 and 6, the others of those between.
  static HWY_INLINE V8I whole(const __m256i (&v)[4]) {
    return V8I{neighbours(neighbours(v[0], v[1]), neighbours(v[2], v[3]))};
  }
  HWY_INLINE void keep(const BlockMxfp4& b, int64_t i, int64_t lane) { scales_[i][lane] = mxfp4_scale(b.e); }
  template <typename Any>
  HWY_INLINE void keep(const Any& b, int64_t i, int64_t lane) {
    halves_[0][i][lane] = b.d.bits;
    if constexpr (has_minima(kType)) halves_[1][i][lane] = b.dmin.bits;
  }
  HWY_INLINE hn::Vec<D8F> factors(int64_t i, int field) const {
    if constexpr (kType == WeightType::mxfp4)
      return hn::LoadU(D8F(), scales_[i]);
    else
      return {_mm256_cvtph_ps(load_128(halves_[field][i]))};
  }

  const int8_t* x_;
  const int16_t* sums_;
  const float* e_;
  int64_t blocks_, ahead_;
  __m256i products_[kChunk][4], minima_[has_minima(kType) ? kChunk : 1][4];
  uint16_t halves_[kFields][kChunk][8];
  float scales_[kType == WeightType::mxfp4 ? kChunk : 1][8];
};

template <WeightType kType, bool vnni>
void dots_of(const QuantizedRows& a, int64_t r, const MatrixView& b, int64_t count, float* y) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (vnni && requires { Unit<kType>::kBlocks; }) {
    if (a.k % TwoRuns<kType>::kUnit == 0) return TwoRuns<kType>(a, r).dots(b, count, y);
  }
#endif
  EightRows<kType>(a, r).dots(b, count, y);
}

// The sum of w x over n integers, which is exact.
HWY_INLINE int32_t dot(const int16_t* w, const int16_t* x, int64_t n) {
  V8I sum = hn::Zero(D8I());
  for (int64_t l = 0; l < n; l += 16) sum = hn::Add(sum, times(load_16(w + l), x + l));
  return hn::GetLane(hn::SumOfLanes(D8I(), sum));
}

// Types without code of their own.
void other_dots(const QuantizedRows& a, int64_t r, const MatrixView& b, int64_t count, float* y) {
  const BlockLayout& layout = layout_of(b.type);
  const int64_t groups = layout.elements / kMinimumGroup;
  for (int64_t j = 0; j < count; ++j) {
    const auto* block = static_cast<const std::byte*>(b.from(j, 0).data);
    float sum = 0;
    for (int64_t i = 0; i < a.k / layout.elements; ++i, block += layout.bytes) {
      const BlockIntegers n = block_integers(b.type, block);
      const float e = a.e[r * (a.k / a.block) + i];
      sum = std::fma(n.d * e,
                     static_cast<float>(dot(n.w, a.x + r * a.stride + i * layout.elements, layout.elements)),
                     sum);
      if (!has_minima(b.type)) continue;
      int32_t minima = 0;
      for (int64_t g = 0; g < groups; ++g)
        minima += n.u[g] * a.sums[r * (a.k / kMinimumGroup) + i * groups + g];
      sum = std::fma(n.m * e, static_cast<float>(minima), sum);
    }
    y[j] = sum;
  }
}

template <bool vnni>
void dots(const QuantizedRows& a, int64_t row, const MatrixView& b, int64_t count, float* y) {
  switch (b.type) {
    case WeightType::q8_0:
      return dots_of<WeightType::q8_0, vnni>(a, row, b, count, y);
    case WeightType::q4_0:
      return dots_of<WeightType::q4_0, vnni>(a, row, b, count, y);
    case WeightType::mxfp4:
      return dots_of<WeightType::mxfp4, vnni>(a, row, b, count, y);
    case WeightType::q4_k:
      return dots_of<WeightType::q4_k, vnni>(a, row, b, count, y);
    case WeightType::q5_k:
      return dots_of<WeightType::q5_k, vnni>(a, row, b, count, y);
    case WeightType::q6_k:
      return dots_of<WeightType::q6_k, vnni>(a, row, b, count, y);
    default:
      return other_dots(a, row, b, count, y);
  }
}

void quantize(int64_t k, int64_t block, const float* x, int16_t* q, int8_t* bytes, float* e, int16_t* sums) {
  const D8F d;
  const D8I di;
  const hn::Rebind<int16_t, D8I> d8;
  const hn::Rebind<int8_t, D8I> d_byte;
  for (int64_t begin = 0; begin < k; begin += block) {
    auto most = hn::Zero(d), nothing = hn::Zero(d);
    for (int64_t l = begin; l < begin + block; l += 8) {
      const auto v = hn::LoadU(d, x + l);
      most = hn::Max(most, hn::Abs(v));
      nothing = hn::MulAdd(v, hn::Zero(d), nothing);  // NaN if an element is not finite
    }
    const float largest = hn::GetLane(hn::MaxOfLanes(d, most)),
                check = hn::GetLane(hn::SumOfLanes(d, nothing));
    const bool finite = check == 0, zero = !finite || largest < kLeastActivation;
    e[begin / block] = !finite ? check : zero ? 0 : largest / 127;
    const auto inverse = hn::Set(d, zero ? 0 : 127 / largest);
    for (int64_t l = begin; l < begin + block; l += 8) {
      const auto v = zero ? hn::Zero(di) : hn::NearestInt(hn::Mul(hn::LoadU(d, x + l), inverse));
      hn::StoreU(hn::DemoteTo(d8, v), d8, q + l);
      hn::StoreU(hn::DemoteTo(d_byte, v), d_byte, bytes + l);
    }
  }
  const V16 one = hn::Set(D16(), 1);
  for (int64_t g = 0; g < k / kMinimumGroup; ++g)
    sums[g] = static_cast<int16_t>(hn::GetLane(hn::SumOfLanes(di, times(one, q + g * kMinimumGroup))));
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

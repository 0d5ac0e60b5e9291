// Products by quantised weights, on x86 with AVX2. Products of integers and the sum of each pair are one
// instruction, and exact. Sums of a block become f32 only when they are whole, as quantized_product.h says.
#if defined(QKV_KERNELS_CPU_QUANTIZED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_QUANTIZED_INL_H
#undef QKV_KERNELS_CPU_QUANTIZED_INL_H
#else
#define QKV_KERNELS_CPU_QUANTIZED_INL_H
#endif

#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// Eight sums at a time: those of eight rows of B.
using D8F = hn::CappedTag<float, 8>;
using D8I = hn::CappedTag<int32_t, 8>;
using D16 = hn::CappedTag<int16_t, 16>;
using V8I = hn::Vec<D8I>;
using V16 = hn::Vec<D16>;

// a b summed over pairs of neighbours: lane i is a[2i] b[2i] + a[2i + 1] b[2i + 1].
template <class D32, class V>
HWY_INLINE hn::Vec<D32> pair_products(D32 d, V a, V b) {
  hn::Vec<D32> unused = hn::Zero(d);
  return hn::ReorderWidenMulAccumulate(d, a, b, hn::Zero(d), unused);
}

HWY_INLINE V16 load_16(const int16_t* p) {
  return hn::LoadU(D16(), p);
}
HWY_INLINE V8I times(V16 w, const int16_t* x) {
  return pair_products(D8I(), w, load_16(x));
}
// Lane r is the sum of v[r]'s lanes.
HWY_INLINE V8I sums_of_lanes(const V8I (&v)[8]) {
  const D8I d;
  const hn::Repartition<int64_t, D8I> pairs;
  const auto both = [&](V8I a, V8I b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto four = [&](V8I a, V8I b) HWY_ATTR {
    const auto x = hn::BitCast(pairs, a), y = hn::BitCast(pairs, b);
    return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, x, y)),
                   hn::BitCast(d, hn::InterleaveUpper(pairs, x, y)));
  };
  const V8I low = four(both(v[0], v[1]), both(v[2], v[3])), high = four(both(v[4], v[5]), both(v[6], v[7]));
  return hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
}

// Bytes by bytes, summed over pairs: one side has no sign. Sums of two products stay below 2^15: at most 127
// * 128 * 2.
HWY_INLINE __m256i pairs_of_bytes(__m256i unsigned_bytes, __m256i signed_bytes) {
  return _mm256_maddubs_epi16(unsigned_bytes, signed_bytes);
}
HWY_INLINE __m256i load_256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
// Sixteen bytes in both halves; and those of two rows.
HWY_INLINE __m256i twice(const int8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HWY_INLINE __m256i both(const uint8_t* p, const uint8_t* q) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
                                 _mm_loadu_si128(reinterpret_cast<const __m128i*>(q)), 1);
}
HWY_INLINE __m256i low_nibbles(__m256i v) {
  return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
HWY_INLINE __m256i high_nibbles(__m256i v) {
  return low_nibbles(_mm256_srli_epi16(v, 4));
}
// Four vectors with the sums of rows j (lower half) and j + 4 (upper half): lane r is the sum of row r.
HWY_INLINE V8I sums_of_halves(const __m256i (&v)[4]) {
  return V8I{_mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]))};
}

// How blocks of a type are read where B is read once. integers(): of one block of eight rows of B, the sums
// of w x, in the lanes of the result. minima(): of one block, the sum of u x, spread over the lanes.
template <WeightType>
struct Rows;

template <>
struct Rows<WeightType::q8_0> {
  using Block = BlockQ80;
  static HWY_INLINE V8I integers(const BlockQ80* const (&row)[8], const int8_t* x, const int16_t*) {
    const __m256i a = load_256(x), one = _mm256_set1_epi16(1);
    V8I v[8];
    for (int j = 0; j < 8; ++j) {
      const __m256i w = load_256(row[j]->qs);
      v[j] = V8I{_mm256_madd_epi16(pairs_of_bytes(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w)), one)};
    }
    return sums_of_lanes(v);
  }
};

template <>
struct Rows<WeightType::q4_0> {
  using Block = BlockQ40;
  static HWY_INLINE V8I integers(const BlockQ40* const (&row)[8], const int8_t* x, const int16_t* sums) {
    const __m256i low = twice(x), high = twice(x + 16), one = _mm256_set1_epi16(1);
    __m256i v[4];
    for (int j = 0; j < 4; ++j) {
      const __m256i q = both(row[j]->qs, row[j + 4]->qs);
      v[j] = _mm256_madd_epi16(
          _mm256_add_epi16(pairs_of_bytes(low_nibbles(q), low), pairs_of_bytes(high_nibbles(q), high)), one);
    }
    return hn::Sub(sums_of_halves(v), hn::Set(D8I(), 8 * (sums[0] + sums[1])));
  }
};

template <>
struct Rows<WeightType::mxfp4> {
  using Block = BlockMxfp4;
  static HWY_INLINE V8I integers(const BlockMxfp4* const (&row)[8], const int8_t* x, const int16_t*) {
    const __m256i low = twice(x), high = twice(x + 16), one = _mm256_set1_epi16(1),
                  table = twice(kMxfp4Values), low_size = _mm256_abs_epi8(low),
                  high_size = _mm256_abs_epi8(high);
    __m256i v[4];
    for (int j = 0; j < 4; ++j) {
      const __m256i q = both(row[j]->qs, row[j + 4]->qs);
      const __m256i first = _mm256_sign_epi8(_mm256_shuffle_epi8(table, low_nibbles(q)), low),
                    second = _mm256_sign_epi8(_mm256_shuffle_epi8(table, high_nibbles(q)), high);
      v[j] = _mm256_madd_epi16(
          _mm256_add_epi16(pairs_of_bytes(low_size, first), pairs_of_bytes(high_size, second)), one);
    }
    return sums_of_halves(v);
  }
};

template <>
struct Rows<WeightType::q4_k> {
  using Block = BlockQ4K;
  static HWY_INLINE V8I minima(const BlockQ4K& b, const int16_t* sums) {
    uint32_t u[3];
    std::memcpy(u, b.scales, 12);
    const uint64_t minima =
        (u[1] & 0x3F3F3F3F) | uint64_t{(u[2] >> 4 & 0x0F0F0F0F) | ((u[1] >> 6 & 0x03030303) << 4)} << 32;
    const __m128i bytes = _mm_cvtsi64_si128(static_cast<int64_t>(minima));
    return V8I{_mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(bytes, bytes)), load_256(sums))};
  }
  static HWY_INLINE V8I integers(const BlockQ4K* const (&row)[8], const int8_t* x, const int16_t*) {
    V8I v[8];
    for (int j = 0; j < 8; ++j) {
      const BlockQ4K& b = *row[j];
      uint32_t u[3];
      std::memcpy(u, b.scales, 12);
      const uint64_t scales =
          (u[0] & 0x3F3F3F3F) | uint64_t{(u[2] & 0x0F0F0F0F) | ((u[0] >> 6 & 0x03030303) << 4)} << 32;
      const __m256i all =
          _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<int64_t>(scales))));
      __m256i sum = _mm256_setzero_si256();
      for (int run = 0; run < 4; ++run) {
        const __m256i q = load_256(b.qs + 32 * run);
        const auto scale = [&](int g) HWY_ATTR {
          return _mm256_shuffle_epi8(all, _mm256_set1_epi16(static_cast<int16_t>((2 * g + 1) << 8 | 2 * g)));
        };
        const __m256i low = pairs_of_bytes(low_nibbles(q), load_256(x + 64 * run)),
                      high = pairs_of_bytes(high_nibbles(q), load_256(x + 64 * run + 32));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, scale(2 * run)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(high, scale(2 * run + 1)));
      }
      v[j] = V8I{sum};
    }
    return sums_of_lanes(v);
  }
};

template <>
struct Rows<WeightType::q6_k> {
  using Block = BlockQ6K;
  static HWY_INLINE V8I integers(const BlockQ6K* const (&row)[8], const int8_t* x, const int16_t* sums) {
    const __m256i bits = _mm256_set1_epi8(0x30);
    const __m256i groups = load_256(sums);
    V8I v[8];
    for (int j = 0; j < 8; ++j) {
      const BlockQ6K& b = *row[j];
      const __m256i scales =
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b.scales)));
      // Every number is 32 too large.
      __m256i sum = _mm256_slli_epi32(_mm256_madd_epi16(scales, groups), 5);
      sum = _mm256_sub_epi32(_mm256_setzero_si256(), sum);
      for (int run = 0; run < 2; ++run) {
        const __m256i left = load_256(b.ql + 64 * run), right = load_256(b.ql + 64 * run + 32),
                      high = load_256(b.qh + 32 * run);
        // The scales of 16 elements in each half.
        const __m256i of_run =
            run == 0 ? _mm256_permute4x64_epi64(scales, 0x44) : _mm256_permute4x64_epi64(scales, 0xEE);
        const auto add = [&](int plane, __m256i low, __m256i shifted) HWY_ATTR {
          const __m256i q = _mm256_or_si256(low, _mm256_and_si256(shifted, bits));
          const int first = 4 * plane, second = first + 2;  // bytes of the two scales
          const auto index = [](int at) { return static_cast<int16_t>((at + 1) << 8 | at); };
          const __m256i scale = _mm256_shuffle_epi8(
              of_run, _mm256_set_m128i(_mm_set1_epi16(index(second)), _mm_set1_epi16(index(first))));
          sum = _mm256_add_epi32(
              sum, _mm256_madd_epi16(pairs_of_bytes(q, load_256(x + 128 * run + 32 * plane)), scale));
        };
        add(0, low_nibbles(left), _mm256_slli_epi16(high, 4));
        add(1, low_nibbles(right), _mm256_slli_epi16(high, 2));
        add(2, high_nibbles(left), high);
        add(3, high_nibbles(right), _mm256_srli_epi16(high, 2));
      }
      v[j] = V8I{sum};
    }
    return sums_of_lanes(v);
  }
};

template <typename Block>
HWY_INLINE hn::Vec<D8F> factors(const Block* const (&row)[8], Float16 Block::*of) {
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
HWY_INLINE hn::Vec<D8F> scales_of(const BlockMxfp4* const (&row)[8]) {
  const auto scale = [&](int r) HWY_ATTR { return mxfp4_scale(row[r]->e); };
  return hn::Vec<D8F>{
      _mm256_setr_ps(scale(0), scale(1), scale(2), scale(3), scale(4), scale(5), scale(6), scale(7))};
}
template <typename Block>
HWY_INLINE hn::Vec<D8F> scales_of(const Block* const (&row)[8]) {
  return factors(row, &Block::d);
}

// Eight rows of B by one row of A.
template <WeightType kType>
HWY_INLINE void eight_dots(const QuantizedRows& a, int64_t r, const typename Rows<kType>::Block* (&row)[8],
                           float* y) {
  using B = Rows<kType>;
  constexpr int64_t kElements = layout_of(kType).elements, kGroups = kElements / kMinimumGroup;
  const D8F d;
  const int8_t* x = a.bytes + r * a.k;
  const int16_t* sums = a.sums + r * (a.k / kMinimumGroup);
  const float* e = a.e + r * (a.k / kElements);
  // The next eight rows: the processor's own prefetching ends with each page.
  const int64_t ahead = 8 * a.k / kElements * layout_of(kType).bytes;
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < a.k / kElements; ++i, x += kElements, sums += kGroups) {
    for (const auto* block : row)
      for (int64_t line = 0; line < layout_of(kType).bytes; line += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(block) + ahead + line);
    const auto factor = hn::Set(d, e[i]);
    sum = hn::MulAdd(hn::Mul(scales_of(row), factor), hn::ConvertTo(d, Rows<kType>::integers(row, x, sums)),
                     sum);
    if constexpr (has_minima(kType)) {
      V8I v[8];
      for (int j = 0; j < 8; ++j) v[j] = B::minima(*row[j], sums);
      const auto m = hn::Neg(factors(row, &B::Block::dmin));
      sum = hn::MulAdd(hn::Mul(m, factor), hn::ConvertTo(d, sums_of_lanes(v)), sum);
    }
    for (auto& block : row) ++block;
  }
  hn::StoreU(sum, d, y);
}

template <WeightType kType>
void dots_of(const QuantizedRows& a, int64_t r, const MatrixView& b, int64_t count, float* y) {
  using Block = typename Rows<kType>::Block;
  for (int64_t j = 0; j < count; j += 8) {
    const Block* row[8];
    for (int64_t i = 0; i < 8; ++i)
      row[i] = static_cast<const Block*>(b.from(std::min(j + i, count - 1), 0).data);
    if (count - j >= 8) {
      eight_dots<kType>(a, r, row, y + j);
    } else {
      float all[8];
      eight_dots<kType>(a, r, row, all);
      std::copy_n(all, count - j, y + j);
    }
  }
}

// The panel of B: rows j of B side by side, pairs of neighbours along k together.
template <int64_t kColumns>
struct Panel {
  static constexpr int64_t kDepth = 512;  // elements at a time, whole blocks of every type
  static constexpr int64_t kBlocks = kDepth / 32;
  alignas(64) int16_t w[kDepth / 2][kColumns][2];
  alignas(64) int16_t u[kDepth / kMinimumGroup / 2][kColumns][2];
  alignas(64) float d[kBlocks][kColumns], m[kBlocks][kColumns];

  // Decodes elements [begin, end) of rows j < count; other columns are 0.
  void decode(const MatrixView& b, int64_t begin, int64_t end, int64_t count) {
    const BlockLayout layout = layout_of(b.type);
    if (count < kColumns) std::memset(this, 0, sizeof(*this));
    for (int64_t j = 0; j < count; ++j) {
      const auto* block = static_cast<const std::byte*>(b.from(j, begin).data);
      for (int64_t i = 0; i < (end - begin) / layout.elements; ++i, block += layout.bytes) {
        const BlockIntegers integers = block_integers(b.type, block);
        d[i][j] = integers.d, m[i][j] = integers.m;
        const int64_t first = i * layout.elements;
        for (int64_t l = 0; l < layout.elements; l += 2)
          std::memcpy(w[(first + l) / 2][j], integers.w + l, 4);
        for (int64_t g = 0; g < layout.elements / kMinimumGroup; g += 2)
          std::memcpy(u[(first / kMinimumGroup + g) / 2][j], integers.u + g, 4);
      }
    }
  }
};

#if HWY_TARGET <= HWY_AVX3
constexpr int64_t kQuantizedRows = 6;
#else
constexpr int64_t kQuantizedRows = 3;
#endif

// Rows [r, r + kRows) of A times blocks [first, first + blocks) of k, which the panel holds; adds to y.
template <int64_t kRows, int64_t kColumns, bool kMinima>
HWY_INLINE void panel_rows(const QuantizedRows& a, int64_t r, int64_t first, int64_t blocks,
                           const Panel<kColumns>& panel, int64_t column, float* y, int64_t y_stride) {
  const DF d;
  const hn::ScalableTag<int32_t> d32;
  const hn::ScalableTag<int16_t> d16;
  constexpr int64_t kLanes = HWY_LANES(float);
  using VI = hn::Vec<decltype(d32)>;
  VF sums[kRows][2];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t v = 0; v < 2; ++v) sums[i][v] = hn::LoadU(d, y + i * y_stride + column + v * kLanes);
  const auto add = [&](const int16_t(*from)[kColumns][2], int64_t pairs, const int16_t* x, int64_t stride,
                       VI(&dots)[kRows][2]) HWY_ATTR {
    for (auto& row : dots) row[0] = row[1] = hn::Zero(d32);
    for (int64_t l = 0; l < pairs; ++l) {
      const auto w0 = hn::Load(d16, from[l][column]), w1 = hn::Load(d16, from[l][column + kLanes]);
      for (int64_t i = 0; i < kRows; ++i) {
        int32_t pair;
        std::memcpy(&pair, x + i * stride + 2 * l, 4);
        const auto both = hn::BitCast(d16, hn::Set(d32, pair));
        dots[i][0] = hn::Add(dots[i][0], pair_products(d32, w0, both));
        dots[i][1] = hn::Add(dots[i][1], pair_products(d32, w1, both));
      }
    }
  };
  const int64_t groups = a.k / kMinimumGroup;
  for (int64_t b = 0; b < blocks; ++b) {
    VI dots[kRows][2];
    const auto take = [&](const float(&factor)[kColumns]) HWY_ATTR {
      for (int64_t i = 0; i < kRows; ++i) {
        const VF e = hn::Set(d, a.e[(r + i) * (a.k / a.block) + first + b]);
        for (int64_t v = 0; v < 2; ++v)
          sums[i][v] = hn::MulAdd(hn::Mul(hn::Load(d, factor + column + v * kLanes), e),
                                  hn::ConvertTo(d, dots[i][v]), sums[i][v]);
      }
    };
    const int64_t begin = b * a.block;
    add(panel.w + begin / 2, a.block / 2, a.x + r * a.k + first * a.block + begin, a.k, dots);
    take(panel.d[b]);
    if constexpr (kMinima) {
      add(panel.u + begin / kMinimumGroup / 2, a.block / kMinimumGroup / 2,
          a.sums + r * groups + (first * a.block + begin) / kMinimumGroup, groups, dots);
      take(panel.m[b]);
    }
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t v = 0; v < 2; ++v) hn::StoreU(sums[i][v], d, y + i * y_stride + column + v * kLanes);
}

template <bool kMinima>
void panel_of(const QuantizedRows& a, const MatrixView& b, int64_t count, float* y, int64_t y_stride) {
  constexpr int64_t kStep = 2 * HWY_LANES(float), kColumns = 2 * kStep;
  static_assert(kPanelColumns % kColumns == 0);
  for (int64_t r = 0; r < a.rows; ++r) std::memset(y + r * y_stride, 0, kPanelColumns * sizeof(float));
  Panel<kColumns> panel;
  for (int64_t j = 0; j < count; j += kColumns)
    for (int64_t l = 0; l < a.k; l += panel.kDepth) {
      const int64_t end = std::min(l + panel.kDepth, a.k), blocks = (end - l) / a.block;
      panel.decode(b.from(j, 0), l, end, std::min(kColumns, count - j));
      int64_t r = 0;
      for (; r + kQuantizedRows <= a.rows; r += kQuantizedRows)
        for (int64_t c = 0; c < kColumns; c += kStep)
          panel_rows<kQuantizedRows, kColumns, kMinima>(a, r, l / a.block, blocks, panel, c,
                                                        y + r * y_stride + j, y_stride);
      for (; r < a.rows; ++r)
        for (int64_t c = 0; c < kColumns; c += kStep)
          panel_rows<1, kColumns, kMinima>(a, r, l / a.block, blocks, panel, c, y + r * y_stride + j,
                                           y_stride);
    }
}

void panel(const QuantizedRows& a, const MatrixView& b, int64_t count, float* y, int64_t y_stride) {
  has_minima(b.type) ? panel_of<true>(a, b, count, y, y_stride) : panel_of<false>(a, b, count, y, y_stride);
}

// The sum of w x over n integers, which is exact.
HWY_INLINE int32_t dot(const int16_t* w, const int16_t* x, int64_t n) {
  V8I sum = hn::Zero(D8I());
  for (int64_t l = 0; l < n; l += 16) sum = hn::Add(sum, times(load_16(w + l), x + l));
  return hn::GetLane(hn::SumOfLanes(D8I(), sum));
}

// Types without code of their own.
void other_dots(const QuantizedRows& a, int64_t r, const MatrixView& b, int64_t count, float* y) {
  const BlockLayout layout = layout_of(b.type);
  const int64_t groups = layout.elements / kMinimumGroup;
  for (int64_t j = 0; j < count; ++j) {
    const auto* block = static_cast<const std::byte*>(b.from(j, 0).data);
    float sum = 0;
    for (int64_t i = 0; i < a.k / layout.elements; ++i, block += layout.bytes) {
      const BlockIntegers n = block_integers(b.type, block);
      const float e = a.e[r * (a.k / a.block) + i];
      sum = std::fma(n.d * e,
                     static_cast<float>(dot(n.w, a.x + r * a.k + i * layout.elements, layout.elements)), sum);
      if (!has_minima(b.type)) continue;
      int32_t minima = 0;
      for (int64_t g = 0; g < groups; ++g)
        minima += n.u[g] * a.sums[r * (a.k / kMinimumGroup) + i * groups + g];
      sum = std::fma(n.m * e, static_cast<float>(minima), sum);
    }
    y[j] = sum;
  }
}

void dots(const QuantizedRows& a, int64_t row, const MatrixView& b, int64_t count, float* y) {
  switch (b.type) {
    case WeightType::q8_0:
      return dots_of<WeightType::q8_0>(a, row, b, count, y);
    case WeightType::q4_0:
      return dots_of<WeightType::q4_0>(a, row, b, count, y);
    case WeightType::mxfp4:
      return dots_of<WeightType::mxfp4>(a, row, b, count, y);
    case WeightType::q4_k:
      return dots_of<WeightType::q4_k>(a, row, b, count, y);
    case WeightType::q6_k:
      return dots_of<WeightType::q6_k>(a, row, b, count, y);
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

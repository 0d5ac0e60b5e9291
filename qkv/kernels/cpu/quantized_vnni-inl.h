// One row of activations by sixteen rows of a quantised weight at a time, with AVX-512 and VNNI. Reading
// memory should set the pace: a core has about four cycles for a block of 18 bytes.
#if defined(QKV_KERNELS_CPU_QUANTIZED_VNNI_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_QUANTIZED_VNNI_INL_H
#undef QKV_KERNELS_CPU_QUANTIZED_VNNI_INL_H
#else
#define QKV_KERNELS_CPU_QUANTIZED_VNNI_INL_H
#endif

#include "qkv/kernels/cpu/quantized_blocks-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

HWY_INLINE __m512i load_512(const void* p) {
  return _mm512_loadu_si512(p);
}
// Low in the lower half, high in the upper one.
HWY_INLINE __m512i halves(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
// 16 bytes of each of four blocks.
template <typename Block>
HWY_INLINE __m512i quarters(const Block* b, int at) {
  const auto from = [&](int i) HWY_ATTR { return load_128(b[i].qs + at); };
  __m512i v = _mm512_castsi128_si512(from(0));
  v = _mm512_inserti32x4(v, from(1), 1);
  v = _mm512_inserti32x4(v, from(2), 2);
  return _mm512_inserti32x4(v, from(3), 3);
}
// Sums of neighbouring lanes: in each quarter two of a, then two of b.
HWY_INLINE __m512i neighbours(__m512i a, __m512i b) {
  const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
  return _mm512_add_epi32(_mm512_castps_si512(_mm512_shuffle_ps(x, y, 0x88)),
                          _mm512_castps_si512(_mm512_shuffle_ps(x, y, 0xDD)));
}
HWY_INLINE __m512i low_nibbles(__m512i v) {
  return _mm512_and_si512(v, _mm512_set1_epi8(15));
}
HWY_INLINE __m512i high_nibbles(__m512i v) {
  return low_nibbles(_mm512_srli_epi16(v, 4));
}

// A unit is read of a row at a time: four blocks of 32 elements, or one of 256. products(): sums of w x, four
// lanes for each of the four blocks, or sixteen for the one; x is in the order of element().
template <WeightType>
struct Unit;

struct FourBlocks {
  static constexpr int kBlocks = 4;
  // First the lower halves of the four blocks, then the upper ones.
  static constexpr int element(int i) { return 32 * (i / 16 % 4) + 16 * (i / 64) + i % 16; }
};

template <>
struct Unit<WeightType::q4_0> : FourBlocks {
  using Block = BlockQ40;
  static constexpr int kOffset = 8;
  static HWY_INLINE __m512i products(const Block* b, const int8_t* x, const int16_t*) {
    const __m512i q = quarters(b, 0);
    const __m512i first = vnni_fours(_mm512_setzero_si512(), low_nibbles(q), load_512(x));
    return vnni_fours(first, high_nibbles(q), load_512(x + 64));
  }
};

template <>
struct Unit<WeightType::q8_0> : FourBlocks {
  using Block = BlockQ80;
  static constexpr int kOffset = 128;
  static HWY_INLINE __m512i products(const Block* b, const int8_t* x, const int16_t*) {
    const __m512i offset = _mm512_set1_epi8(-128);
    const __m512i first =
        vnni_fours(_mm512_setzero_si512(), _mm512_xor_si512(quarters(b, 0), offset), load_512(x));
    return vnni_fours(first, _mm512_xor_si512(quarters(b, 16), offset), load_512(x + 64));
  }
};

template <>
struct Unit<WeightType::mxfp4> : FourBlocks {
  using Block = BlockMxfp4;
  static constexpr int kOffset = 12;
  static HWY_INLINE __m512i products(const Block* b, const int8_t* x, const int16_t*) {
    const __m512i table =
        _mm512_add_epi8(_mm512_broadcast_i32x4(load_128(kMxfp4Values)), _mm512_set1_epi8(kOffset));
    const __m512i q = quarters(b, 0);
    const __m512i first =
        vnni_fours(_mm512_setzero_si512(), _mm512_shuffle_epi8(table, low_nibbles(q)), load_512(x));
    return vnni_fours(first, _mm512_shuffle_epi8(table, high_nibbles(q)), load_512(x + 64));
  }
};

// Both pairs and their scales are in 16 bits: sums of two products of bytes fit.
HWY_INLINE __m512i add_scaled(__m512i sum, __m512i numbers, const int8_t* x, __m512i scales) {
  return vnni_pairs(sum, _mm512_maddubs_epi16(numbers, load_512(x)), scales);
}

template <class Block_>
struct UnitWithMinima {
  using Block = Block_;
  static constexpr int kBlocks = 1;
  static constexpr int element(int i) { return 64 * (i / 128 * 2 + i / 32 % 2) + 32 * (i / 64 % 2) + i % 32; }
  static HWY_INLINE __m512i products(const Block* b, const int8_t* x, const int16_t*) {
    const __m512i scales =
        _mm512_castsi128_si512(_mm_cvtepu8_epi16(_mm256_castsi256_si128(scales_and_minima(*b, *b))));
    __m512i sum = _mm512_setzero_si512();
    for (int z = 0; z < 2; ++z) {
      const __m512i q = load_512(b->qs + 64 * z);
      const auto of_groups = [&](int first, int second) HWY_ATTR {
        return _mm512_permutexvar_epi16(halves(_mm256_set1_epi16(static_cast<int16_t>(first)),
                                               _mm256_set1_epi16(static_cast<int16_t>(second))),
                                        scales);
      };
      const auto add = [&](__m512i numbers, int high) HWY_ATTR {
        sum = add_scaled(sum, with_fifth_bit(*b, numbers, 4 * z + high), x + 128 * z + 64 * high,
                         of_groups(4 * z + high, 4 * z + high + 2));
      };
      add(low_nibbles(q), 0);
      add(high_nibbles(q), 1);
    }
    return sum;
  }
  static HWY_INLINE __m128i minima(const Block& b, const int16_t* sums) {
    const __m128i of_32 = _mm_packs_epi32(_mm_madd_epi16(load_128(sums), _mm_set1_epi16(1)),
                                          _mm_madd_epi16(load_128(sums + 8), _mm_set1_epi16(1)));
    const __m128i both = _mm256_castsi256_si128(scales_and_minima(b, b));
    return _mm_madd_epi16(_mm_unpackhi_epi8(both, _mm_setzero_si128()), of_32);
  }

 private:
  static HWY_INLINE __m512i with_fifth_bit(const BlockQ4K&, __m512i numbers, int) { return numbers; }
  // Bits `at` of the lower half's numbers, bits at + 2 of the upper half's.
  static HWY_INLINE __m512i with_fifth_bit(const BlockQ5K& b, __m512i numbers, int at) {
    const __m512i bits = _mm512_broadcast_i64x4(load_256(b.qh));
    const __mmask64 set = _mm512_test_epi8_mask(bits, halves(_mm256_set1_epi8(static_cast<char>(1 << at)),
                                                             _mm256_set1_epi8(static_cast<char>(4 << at))));
    return _mm512_mask_add_epi8(numbers, set, numbers, _mm512_set1_epi8(16));
  }
};
template <>
struct Unit<WeightType::q4_k> : UnitWithMinima<BlockQ4K> {};
template <>
struct Unit<WeightType::q5_k> : UnitWithMinima<BlockQ5K> {};

template <>
struct Unit<WeightType::q6_k> {
  using Block = BlockQ6K;
  static constexpr int kBlocks = 1;
  static constexpr int element(int i) { return i; }
  static HWY_INLINE __m512i products(const Block* b, const int8_t* x, const int16_t* sums) {
    const __m256i scales = _mm256_cvtepi8_epi16(load_128(b->scales));
    // Every number is 32 too large.
    const __m256i offsets = _mm256_slli_epi32(_mm256_madd_epi16(scales, load_256(sums)), 5);
    __m512i sum = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_zextsi256_si512(offsets));
    const __m512i top = _mm512_set1_epi8(0x30);
    for (int run = 0; run < 2; ++run) {
      const __m512i low = load_512(b->ql + 64 * run),
                    high = _mm512_broadcast_i64x4(load_256(b->qh + 32 * run));
      const auto shift = [](int lower, int upper) HWY_ATTR {
        return halves(_mm256_set1_epi16(static_cast<int16_t>(lower)),
                      _mm256_set1_epi16(static_cast<int16_t>(upper)));
      };
      const auto of_groups = [&](int first) HWY_ATTR {
        const auto group = [&](int g) HWY_ATTR { return _mm_set1_epi16(static_cast<int16_t>(first + g)); };
        const __m512i index =
            halves(_mm256_set_m128i(group(1), group(0)), _mm256_set_m128i(group(3), group(2)));
        return _mm512_permutexvar_epi16(index, _mm512_castsi256_si512(scales));
      };
      const __m512i first = _mm512_and_si512(_mm512_sllv_epi16(high, shift(4, 2)), top),
                    second = _mm512_and_si512(_mm512_srlv_epi16(high, shift(0, 2)), top);
      sum = add_scaled(sum, _mm512_or_si512(low_nibbles(low), first), x + 128 * run, of_groups(8 * run));
      sum = add_scaled(sum, _mm512_or_si512(high_nibbles(low), second), x + 128 * run + 64,
                       of_groups(8 * run + 4));
    }
    return sum;
  }
};

// Rows of B by one row of A. Two runs of rows are read side by side, each from front to back. Lines are
// fetched ahead all the time, while sums are added as well as while rows are read: memory sets the pace, and
// a pause in its work is lost.
template <WeightType kType>
class TwoRuns {
 public:
  using B = Unit<kType>;
  using Block = typename B::Block;
  static constexpr int64_t kElements = layout_of(kType).elements, kUnit = B::kBlocks * kElements;

  TwoRuns(const QuantizedRows& a, int64_t row)
      : sums_(a.sums + row * (a.k / kMinimumGroup)),
        e_(a.e + row * (a.k / kElements)),
        units_(a.k / kUnit),
        pairs_(units_ <= kMostUnits       ? kPairs
               : units_ <= 2 * kMostUnits ? kPairs / 2
                                          : kPairs / 4),
        x_(a.k),
        offsets_(kOffset != 0 ? a.k / kElements : 0),
        memory_(std::make_unique_for_overwrite<Kept[]>(units_)) {
    for (int64_t u = 0; u < units_; ++u)
      for (int i = 0; i < kUnit; i += 16)
        std::memcpy(x_.data() + u * kUnit + i, a.bytes + row * a.stride + u * kUnit + B::element(i), 16);
    for (int64_t b = 0; b < std::ssize(offsets_); ++b)
      offsets_[b] = kOffset * (sums_[2 * b] + sums_[2 * b + 1]);
  }

  // y[j] for rows j < count of B.
  void dots(const MatrixView& b, int64_t count, float* y) {
    const int64_t half = (count + 1) / 2, row_bytes = units_ * kUnitBytes;
    const auto row = [&](int64_t j) {
      return static_cast<const char*>(b.data) + std::min(j, count - 1) * row_bytes;
    };
    for (int64_t j = 0; j < half; j += pairs_) {
      for (int run = 0; run < 2; ++run) ahead_[run] = row(j + run * half) + kAhead;
      for (int64_t i = 0; i < pairs_; ++i)
        read(reinterpret_cast<const Block*>(row(j + i)), reinterpret_cast<const Block*>(row(j + i + half)),
             i);
      __m512 sum = _mm512_setzero_ps();
      for (int64_t u = 0; u < units_; ++u) sum = add(u, sum);
      // Lane 2 i is row j + i of the first run, lane 2 i + 1 that of the second.
      alignas(64) float all[2 * kPairs];
      _mm512_store_ps(all, sum);
      for (int64_t i = 0; i < std::min(pairs_, half - j); ++i) {
        y[j + i] = all[2 * i];
        if (j + i + half < count) y[j + i + half] = all[2 * i + 1];
      }
    }
  }

 private:
  static constexpr int64_t kBytes = layout_of(kType).bytes;
  static constexpr int kBlocks = B::kBlocks, kPairs = 8;
  static constexpr int64_t kUnitBytes = kBlocks * kBytes;
  static constexpr int64_t kAhead = 2048;    // bytes
  static constexpr int64_t kMostUnits = 24;  // with kPairs pairs: so the kept units stay in L1
  static constexpr int kFields = has_minima(kType) ? 2 : 1;
  static constexpr int kOffset = [] {
    if constexpr (requires { B::kOffset; }) return B::kOffset;
    return 0;
  }();

  // A unit of all rows, kept until its sums are added. Rows of the two runs alternate.
  struct Kept {
    __m512i products[kPairs];  // neighbours() of both
    __m128i minima[has_minima(kType) ? 2 * kPairs : 1];
    alignas(64) uint16_t factors[kFields][2 * kPairs * kBlocks];
  };

  HWY_INLINE void fetch(const char*& line) {
    __builtin_prefetch(line);
    line += 64;
  }

  // The i-th pair of rows.
  HWY_INLINE void read(const Block* first, const Block* second, int64_t i) {
    const char *ahead0 = ahead_[0], *ahead1 = ahead_[1];
    const int8_t* x = x_.data();
    const int16_t* sums = sums_;
    for (Kept *to = memory_.get(), *end = to + units_; to < end; ++to) {
      for (int64_t line = 0; line < kUnitBytes / 64; ++line) fetch(ahead0), fetch(ahead1);
      to->products[i] = neighbours(B::products(first, x, sums), B::products(second, x, sums));
      keep(first, 2 * i, sums, to);
      keep(second, 2 * i + 1, sums, to);
      first += kBlocks, second += kBlocks, x += kUnit, sums += kUnit / kMinimumGroup;
    }
    ahead_[0] = ahead0, ahead_[1] = ahead1;
  }
  static HWY_INLINE void keep(const Block* b, int64_t r, const int16_t* sums, Kept* to) {
    if constexpr (kBlocks == 1) {
      to->factors[0][r] = b->d.bits;
      if constexpr (has_minima(kType)) {
        to->factors[1][r] = b->dmin.bits;
        to->minima[4 * (r % 4) + r / 4] = B::minima(*b, sums);  // neighbours() takes rows in this order
      }
    } else if constexpr (kType == WeightType::mxfp4) {
      for (int i = 0; i < 4; ++i)
        to->factors[0][r * 4 + i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(mxfp4_scale(b[i].e)) >> 16);
    } else if constexpr (kUnitBytes - kBytes + 2 <= 64) {
      constexpr int16_t kStep = kBytes / 2;
      const __m512i index =
          _mm512_castsi128_si512(_mm_setr_epi16(0, kStep, 2 * kStep, 3 * kStep, 0, 0, 0, 0));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to->factors[0] + r * 4),
                       _mm512_castsi512_si128(_mm512_permutexvar_epi16(index, load_512(b))));
    } else {
      for (int i = 0; i < 4; ++i) to->factors[0][r * 4 + i] = b[i].d.bits;
    }
  }

  // Quarter by quarter the sums of all rows.
  static HWY_INLINE void sums_of_rows(const __m512i (&pairs)[kPairs], __m512i (&quarter)[4]) {
    __m512i q[4];
    for (int i = 0; i < 4; ++i) q[i] = neighbours(pairs[2 * i], pairs[2 * i + 1]);
    const __m512i a = _mm512_shuffle_i32x4(q[0], q[1], 0x44), b = _mm512_shuffle_i32x4(q[2], q[3], 0x44),
                  c = _mm512_shuffle_i32x4(q[0], q[1], 0xEE), d = _mm512_shuffle_i32x4(q[2], q[3], 0xEE);
    quarter[0] = _mm512_shuffle_i32x4(a, b, 0x88), quarter[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
    quarter[2] = _mm512_shuffle_i32x4(c, d, 0x88), quarter[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
  }
  static HWY_INLINE __m512 fma(__m512 factor, float e, __m512i dots, __m512 sum) {
    return _mm512_fmadd_ps(_mm512_mul_ps(factor, _mm512_set1_ps(e)), _mm512_cvtepi32_ps(dots), sum);
  }

  // Factors of 16 rows: f16, or powers of two as bf16.
  static HWY_INLINE __m512 widened(__m256i factors) {
    if constexpr (kType == WeightType::mxfp4)
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(factors), 16));
    else
      return _mm512_cvtph_ps(factors);
  }

  // Adds the products of a unit to the sums of all rows.
  HWY_INLINE __m512 add(int64_t unit, __m512 sum) {
    // The lines that read() left out.
    for (int64_t i = 0; i < pairs_ * (kUnitBytes % 64); i += 64) fetch(ahead_[0]), fetch(ahead_[1]);
    const Kept& kept = memory_[unit];
    __m512i dots[4];
    sums_of_rows(kept.products, dots);
    const float* e = e_ + unit * kBlocks;
    if constexpr (kBlocks == 1) {
      const auto factor = [&](int field) HWY_ATTR { return widened(load_256(kept.factors[field])); };
      sum =
          fma(factor(0), *e,
              _mm512_add_epi32(_mm512_add_epi32(dots[0], dots[1]), _mm512_add_epi32(dots[2], dots[3])), sum);
      if constexpr (has_minima(kType)) {
        const auto four = [&](int i) HWY_ATTR { return load_512(kept.minima + 4 * i); };
        sum = fma(_mm512_xor_ps(factor(1), _mm512_set1_ps(-0.0F)), *e,
                  neighbours(neighbours(four(0), four(1)), neighbours(four(2), four(3))), sum);
      }
    } else {
      const __m512i first = load_512(kept.factors[0]), second = load_512(kept.factors[0] + 32);
      const __m512i every_fourth = _mm512_castsi256_si512(
          _mm256_setr_epi16(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60));
      const int32_t* offsets = offsets_.data() + unit * kBlocks;
      for (int i = 0; i < 4; ++i) {
        const __m512i index = _mm512_add_epi16(every_fourth, _mm512_set1_epi16(static_cast<int16_t>(i)));
        const __m256i d = _mm512_castsi512_si256(_mm512_permutex2var_epi16(first, index, second));
        sum = fma(widened(d), e[i], _mm512_sub_epi32(dots[i], _mm512_set1_epi32(offsets[i])), sum);
      }
    }
    return sum;
  }

  const int16_t* sums_;
  const float* e_;
  int64_t units_, pairs_;
  const char* ahead_[2];
  std::vector<int8_t> x_;
  std::vector<int32_t> offsets_;
  std::unique_ptr<Kept[]> memory_;
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif
#endif

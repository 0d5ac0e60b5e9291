// Products of many rows of activations: rows of B are decoded into a panel once, side by side, and all rows
// of A use it. The panel holds small numbers without sign in bytes, four neighbours along k in a lane, and
// others in 16 bits, two in a lane. Products of bytes are summed in 16 bits as long as these suffice.
#if defined(QKV_KERNELS_CPU_QUANTIZED_PANEL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_QUANTIZED_PANEL_INL_H
#undef QKV_KERNELS_CPU_QUANTIZED_PANEL_INL_H
#else
#define QKV_KERNELS_CPU_QUANTIZED_PANEL_INL_H
#endif

#include "qkv/kernels/cpu/quantized_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

using D16S = hn::ScalableTag<int16_t>;
using D32S = hn::ScalableTag<int32_t>;
using V16S = hn::Vec<D16S>;
using V32S = hn::Vec<D32S>;

// a b summed over pairs of neighbours: lane i is a[2i] b[2i] + a[2i + 1] b[2i + 1].
template <class D32, class V>
HWY_INLINE hn::Vec<D32> pair_products(D32 d, V a, V b) {
  hn::Vec<D32> unused = hn::Zero(d);
  return hn::ReorderWidenMulAccumulate(d, a, b, hn::Zero(d), unused);
}
// The same of bytes, where those of `a` have no sign, to 16 bits.
HWY_INLINE V16S byte_products(V32S a, V32S b) {
#if HWY_TARGET <= HWY_AVX3
  return V16S{_mm512_maddubs_epi16(a.raw, b.raw)};
#else
  return V16S{_mm256_maddubs_epi16(a.raw, b.raw)};
#endif
}

HWY_INLINE V32S load_lanes(const uint8_t* p) {
  return hn::Load(D32S(), reinterpret_cast<const int32_t*>(p));
}

// f(0) to f(n - 1), where each index is a constant: arrays that only such code uses are registers.
template <int64_t n, class F>
HWY_INLINE void each(const F& f) {
  [&]<int64_t... i>(std::integer_sequence<int64_t, i...>) HWY_ATTR {
    (f(std::integral_constant<int64_t, i>()), ...);
  }
  (std::make_integer_sequence<int64_t, n>());
}
// a + b, now: compilers that reorder additions of integers would keep many products in memory until then.
template <class D, class V>
HWY_INLINE V sum_now(D, V a, V b) {
  V sum = hn::Add(a, b);
  __asm__("" : "+v"(sum.raw));
  return sum;
}

// The pointer, of which the compiler does not know where it came from: it would keep many sums of it in
// memory.
template <typename T>
HWY_INLINE const T* base(const T* p) {
  __asm__("" : "+r"(p));
  return p;
}

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

// How a panel holds blocks of a type: elements of type `Element`; their groups' scales and what they are too
// large by, where they have that.
template <WeightType kType>
struct Sizes {
  static constexpr int kElements = static_cast<int>(layout_of(kType).elements);
  static constexpr bool kMinima = has_minima(kType);
};
template <WeightType kType>
struct InBytes : Sizes<kType> {
  using Element = uint8_t;
  static constexpr bool kScaled = false, kOwnOffsets = false;
  static constexpr int kOffset = 0;  // that of every element, unless groups have their own
};
template <WeightType>
struct Form;

template <>
struct Form<WeightType::q4_0> : InBytes<WeightType::q4_0> {
  using Block = BlockQ40;
  static constexpr int kMost = 15, kGroup = 32, kOffset = 8;
  static HWY_INLINE __m256i run(const Block& b, int) { return nibbles(b.qs); }
};
template <>
struct Form<WeightType::mxfp4> : InBytes<WeightType::mxfp4> {
  using Block = BlockMxfp4;
  static constexpr int kMost = 24, kGroup = 32, kOffset = 12;
  static HWY_INLINE __m256i run(const Block& b, int) {
    const __m256i table =
        _mm256_add_epi8(_mm256_broadcastsi128_si256(load_128(kMxfp4Values)), _mm256_set1_epi8(kOffset));
    return _mm256_shuffle_epi8(table, nibbles(b.qs));
  }
};
template <class Block_, int kMost_>
struct WithMinima : InBytes<Block_::kType> {
  using Block = Block_;
  static constexpr int kMost = kMost_, kGroup = 32;
  static constexpr bool kScaled = true;
  static HWY_INLINE __m256i run(const Block& b, int i) { return numbers_of_32(b, i / 2, i % 2 == 1); }
  static HWY_INLINE __m256i scales(const Block& b, int) { return twice_in_lanes(both_of(b)); }
  static HWY_INLINE __m256i minima(const Block& b) { return twice_in_lanes(_mm_srli_si128(both_of(b), 8)); }

 private:
  static HWY_INLINE __m128i both_of(const Block& b) {
    return _mm256_castsi256_si128(scales_and_minima(b, b));
  }
  static HWY_INLINE __m256i twice_in_lanes(__m128i bytes) {
    const __m256i lanes = _mm256_cvtepu8_epi32(bytes);
    return _mm256_or_si256(lanes, _mm256_slli_epi32(lanes, 16));
  }
};
template <>
struct Form<WeightType::q4_k> : WithMinima<BlockQ4K, 15> {};
template <>
struct Form<WeightType::q5_k> : WithMinima<BlockQ5K, 31> {};
template <>
struct Form<WeightType::q6_k> : InBytes<WeightType::q6_k> {
  using Block = BlockQ6K;
  static constexpr int kMost = 63, kGroup = 16;
  static constexpr bool kScaled = true, kOwnOffsets = true;
  static HWY_INLINE __m256i run(const Block& b, int i) { return six_bits(b, i / 4, i % 4); }
  // Those of groups [8 i, 8 i + 8).
  static HWY_INLINE __m256i scales(const Block& b, int i) {
    const __m128i all = load_128(b.scales);
    const __m256i lanes = _mm256_cvtepi8_epi32(i == 0 ? all : _mm_srli_si128(all, 8));
    return _mm256_blend_epi16(lanes, _mm256_slli_epi32(lanes, 16), 0xAA);
  }
  static HWY_INLINE __m256i offsets(const Block& b) {
    const __m256i scales = _mm256_cvtepi8_epi16(load_128(b.scales));
    return _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_slli_epi16(scales, 5));
  }
};
template <>
struct Form<WeightType::q8_0> : Sizes<WeightType::q8_0> {
  using Block = BlockQ80;
  using Element = int16_t;
};

// Types without a form of their own.
template <int kElements_, bool kMinima_>
struct OtherForm {
  using Element = int16_t;
  static constexpr int kElements = kElements_;
  static constexpr bool kMinima = kMinima_;
};

// Columns are rows of B. Numbers of one lane are neighbours along k.
template <class F, int64_t kColumns>
struct Panel {
  using Element = typename F::Element;
  static constexpr bool kBytes = sizeof(Element) == 1;
  static constexpr int64_t kInLane = kBytes ? 4 : 2, kElements = F::kElements;
  static constexpr int64_t kDepth = 512;  // elements at a time: whole blocks
  static constexpr int64_t kBlocks = kDepth / kElements, kGroups = kDepth / kMinimumGroup;
  alignas(64) Element w[kDepth / kInLane][kColumns][kInLane];
  alignas(64) int16_t scales[kGroups][kColumns][2];       // both numbers of a lane are the same
  alignas(64) int16_t offsets[kGroups / 2][kColumns][2];  // in a lane those of two groups of 16 elements
  alignas(64) int16_t minima[kGroups / 2][kColumns][2];   // the same
  alignas(64) float d[kBlocks][kColumns], m[kBlocks][kColumns];

  // Row r of A, in bytes.
  static constexpr int64_t kActivation = kBytes ? 1 : 2;
  static const char* activations(const QuantizedRows& a, int64_t r) {
    return kBytes ? reinterpret_cast<const char*>(a.bytes + r * a.stride)
                  : reinterpret_cast<const char*>(a.x + r * a.stride);
  }

  // Decodes elements [begin, end) of rows [0, count) of B. Columns up to the next multiple of 8 repeat the
  // last row.
  void decode(const MatrixView& b, int64_t begin, int64_t end, int64_t count) {
    if (count < kColumns) std::memset(this, 0, sizeof(*this));
    const int64_t blocks = (end - begin) / kElements, row_bytes = b.row_bytes();
    const auto* first = static_cast<const std::byte*>(b.from(0, begin).data);
    for (int64_t j = 0; j < count; j += 8) {
      const std::byte* row[8];
      for (int64_t i = 0; i < 8; ++i) row[i] = first + std::min(j + i, count - 1) * row_bytes;
      if constexpr (requires { typename F::Block; })
        decode_blocks(row, blocks, j);
      else
        decode_other(b.type, row, blocks, j);
    }
  }

 private:
  // Stores lane i of v[j] in line i of `to`, at column j.
  template <typename Line>
  static HWY_INLINE void store(__m256i (&v)[8], Line* to, int64_t column) {
    transpose(v);
    for (int i = 0; i < 8; ++i) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to[i][column]), v[i]);
  }
  HWY_INLINE void decode_blocks(const std::byte* const (&rows)[8], int64_t blocks, int64_t column) {
    const typename F::Block* row[8];
    for (int j = 0; j < 8; ++j) row[j] = reinterpret_cast<const typename F::Block*>(rows[j]);
    const D8F df;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t first = i * kElements;
      __m256i v[8];
      if constexpr (kBytes) {
        for (int run = 0; run < kElements / 32; ++run) {
          for (int j = 0; j < 8; ++j) v[j] = F::run(*row[j], run);
          store(v, w + (first + run * 32) / kInLane, column);
        }
        if constexpr (F::kScaled)
          for (int64_t g = 0; g < kElements / F::kGroup; g += 8) {
            for (int j = 0; j < 8; ++j) v[j] = F::scales(*row[j], static_cast<int>(g / 8));
            store(v, scales + first / F::kGroup + g, column);
          }
        if constexpr (F::kOwnOffsets) {
          for (int j = 0; j < 8; ++j) v[j] = F::offsets(*row[j]);
          store(v, offsets + first / 32, column);
        }
        if constexpr (F::kMinima) {
          for (int j = 0; j < 8; ++j) v[j] = F::minima(*row[j]);
          store(v, minima + first / 32, column);
          hn::StoreU(hn::Neg(factors(row, &F::Block::dmin)), df, m[i] + column);
        }
      } else {
        for (int64_t half = 0; half < 2; ++half) {
          for (int j = 0; j < 8; ++j) v[j] = _mm256_cvtepi8_epi16(load_128(row[j]->qs + 16 * half));
          store(v, w + (first + 16 * half) / kInLane, column);
        }
      }
      hn::StoreU(scales_of(row), df, d[i] + column);
      for (auto& block : row) ++block;
    }
  }
  void decode_other(WeightType type, const std::byte* const (&rows)[8], int64_t blocks, int64_t column) {
    for (int64_t j = 0; j < 8; ++j)
      for (int64_t i = 0; i < blocks; ++i) {
        const BlockIntegers integers = block_integers(type, rows[j] + i * layout_of(type).bytes);
        d[i][column + j] = integers.d;
        const int64_t first = i * kElements;
        for (int64_t l = 0; l < kElements; l += 2)
          std::memcpy(w[(first + l) / 2][column + j], integers.w + l, 4);
        if constexpr (F::kMinima) {
          m[i][column + j] = integers.m;
          for (int64_t g = 0; g < kElements / kMinimumGroup; g += 2)
            std::memcpy(minima[(first / kMinimumGroup + g) / 2][column + j], integers.u + g, 4);
        }
      }
  }
};

// Rows [r, r + kRows) of A times blocks [first, first + blocks) of k, which the panel holds, for two vectors
// of columns; adds to y.
template <class F, int64_t kRows, int64_t kColumns>
HWY_INLINE void panel_rows(const QuantizedRows& a, int64_t r, int64_t first, int64_t blocks,
                           const Panel<F, kColumns>& panel, int64_t column, float* y, int64_t y_stride) {
  using P = Panel<F, kColumns>;
  const DF d;
  const D32S d32;
  const D16S d16;
  constexpr int64_t kLanes = HWY_LANES(float), kElements = P::kElements;
  // Not fields of `a`, which the compiler would read again after each store to y.
  const int64_t groups = a.k / kMinimumGroup, factors = a.k / kElements, stride = a.stride;
  const int16_t* all_sums = a.sums + r * groups + first * (kElements / kMinimumGroup);
  const float* all_e = a.e + r * factors + first;
  V32S dots[kRows][2];
  const auto set_dots = [&]() HWY_ATTR {
    each<kRows>([&](auto i) HWY_ATTR { dots[i][0] = dots[i][1] = hn::Zero(d32); });
  };
  // Adds the sums of `numbers` times the activations' sums.
  const auto add_sums = [&](const int16_t(*numbers)[kColumns][2], int64_t b) HWY_ATTR {
    const int16_t* sums = all_sums + b * (kElements / kMinimumGroup);
    for (int64_t p = 0; p < kElements / 32; ++p) {
      const auto n0 = hn::Load(d16, numbers[p][column]), n1 = hn::Load(d16, numbers[p][column + kLanes]);
      each<kRows>([&](auto i) HWY_ATTR {
        int32_t pair;
        std::memcpy(&pair, sums + i * groups + 2 * p, 4);
        const auto both = hn::BitCast(d16, hn::Set(d32, pair));
        dots[i][0] = sum_now(d32, dots[i][0], pair_products(d32, n0, both));
        dots[i][1] = sum_now(d32, dots[i][1], pair_products(d32, n1, both));
      });
    }
  };
  const auto take = [&](const float(&factor)[kColumns], int64_t b) HWY_ATTR {
    each<kRows>([&](auto i) HWY_ATTR {
      const VF e = hn::Set(d, all_e[i * factors + b]);
      each<2>([&](auto v) HWY_ATTR {
        float* to = y + i * y_stride + column + v * kLanes;
        hn::StoreU(hn::MulAdd(hn::Mul(hn::Load(d, factor + column + v * kLanes), e),
                              hn::ConvertTo(d, dots[i][v]), hn::LoadU(d, to)),
                   d, to);
      });
    });
  };
  for (int64_t b = 0; b < blocks; ++b) {
    set_dots();
    if constexpr (P::kBytes) {
      if constexpr (F::kOwnOffsets) add_sums(panel.offsets + b * (kElements / 32), b);
      if constexpr (F::kOffset != 0) {
        static_assert(kElements == 32);
        each<kRows>([&](auto i) HWY_ATTR {
          int32_t pair;
          std::memcpy(&pair, all_sums + i * groups + 2 * b, 4);
          dots[i][0] = dots[i][1] =
              pair_products(d32, hn::BitCast(d16, hn::Set(d32, pair)), hn::Set(d16, -F::kOffset));
        });
      }
      // Sums of products that 16 bits hold.
      constexpr int64_t kAll = 32767 / (2 * 127 * F::kMost), kFours = kAll >= 8 ? 8 : kAll >= 4 ? 4 : 2;
      static_assert(kAll >= kFours && kFours * 4 <= F::kGroup);
      const int8_t* x = a.bytes + r * stride + (first + b) * kElements;
      const auto* w = base(panel.w[b * kElements / 4][column]);
      for (int64_t l = 0; l < kElements / 4; l += kFours) {
        V16S sums[kRows][2];
        each<kFours>([&](auto f) HWY_ATTR {
          const auto w0 = load_lanes(w + (l + f) * kColumns * 4),
                     w1 = load_lanes(w + ((l + f) * kColumns + kLanes) * 4);
          each<kRows>([&](auto i) HWY_ATTR {
            int32_t four;
            std::memcpy(&four, x + i * stride + 4 * (l + f), 4);
            const auto all = hn::Set(d32, four);
            const V16S p0 = byte_products(w0, all), p1 = byte_products(w1, all);
            sums[i][0] = f == 0 ? p0 : sum_now(d16, sums[i][0], p0);
            sums[i][1] = f == 0 ? p1 : sum_now(d16, sums[i][1], p1);
          });
        });
        V16S scale[2] = {hn::Set(d16, 1), hn::Set(d16, 1)};
        if constexpr (F::kScaled)
          for (int64_t v = 0; v < 2; ++v)
            scale[v] = hn::Load(d16, panel.scales[(b * kElements + 4 * l) / F::kGroup][column + v * kLanes]);
        each<kRows>([&](auto i) HWY_ATTR {
          dots[i][0] = hn::Add(dots[i][0], pair_products(d32, sums[i][0], scale[0]));
          dots[i][1] = hn::Add(dots[i][1], pair_products(d32, sums[i][1], scale[1]));
        });
      }
    } else {
      const int16_t* x = a.x + r * stride + (first + b) * kElements;
      const auto* w = base(panel.w[b * kElements / 2][column]);
      for (int64_t l = 0; l < kElements / 2; l += 16)
        each<16>([&](auto f) HWY_ATTR {
          const auto w0 = hn::Load(d16, w + (l + f) * kColumns * 2),
                     w1 = hn::Load(d16, w + ((l + f) * kColumns + kLanes) * 2);
          each<kRows>([&](auto i) HWY_ATTR {
            int32_t pair;
            std::memcpy(&pair, x + i * stride + 2 * (l + f), 4);
            const auto both = hn::BitCast(d16, hn::Set(d32, pair));
            dots[i][0] = sum_now(d32, dots[i][0], pair_products(d32, w0, both));
            dots[i][1] = sum_now(d32, dots[i][1], pair_products(d32, w1, both));
          });
        });
    }
    take(panel.d[b], b);
    if constexpr (F::kMinima) {
      set_dots();
      add_sums(panel.minima + b * (kElements / 32), b);
      take(panel.m[b], b);
    }
  }
}

template <class F>
void panel_of(const QuantizedRows& a, const MatrixView& b, int64_t count, float* y, int64_t y_stride) {
  constexpr int64_t kStep = 2 * HWY_LANES(float), kColumns = 2 * kStep;
  static_assert(kPanelColumns % kColumns == 0);
  for (int64_t r = 0; r < a.rows; ++r) std::memset(y + r * y_stride, 0, kPanelColumns * sizeof(float));
  using P = Panel<F, kColumns>;
  P panel;
  for (int64_t j = 0; j < count; j += kColumns)
    for (int64_t l = 0; l < a.k; l += panel.kDepth) {
      const int64_t end = std::min(l + panel.kDepth, a.k), blocks = (end - l) / a.block;
      panel.decode(b.from(j, 0), l, end, std::min(kColumns, count - j));
      int64_t r = 0;
      const auto rows = [&](auto n) HWY_ATTR {
        constexpr int64_t kRows = decltype(n)::value;
        for (; r + kRows <= a.rows; r += kRows) {
          for (int64_t i = r + kRows; i < std::min(r + 2 * kRows, a.rows); ++i)
            for (int64_t at = l * P::kActivation; at < end * P::kActivation; at += 64)
              __builtin_prefetch(P::activations(a, i) + at);
          for (int64_t c = 0; c < kColumns; c += kStep)
            panel_rows<F, kRows>(a, r, l / a.block, blocks, panel, c, y + r * y_stride + j, y_stride);
        }
      };
      rows(std::integral_constant < int64_t, HWY_TARGET <= HWY_AVX3 ? 6 : 4 > ());
      rows(std::integral_constant<int64_t, 1>());
    }
}

void panel(const QuantizedRows& a, const MatrixView& b, int64_t count, float* y, int64_t y_stride) {
  using enum WeightType;
  switch (b.type) {
    case q4_0:
      return panel_of<Form<q4_0>>(a, b, count, y, y_stride);
    case mxfp4:
      return panel_of<Form<mxfp4>>(a, b, count, y, y_stride);
    case q4_k:
      return panel_of<Form<q4_k>>(a, b, count, y, y_stride);
    case q5_k:
      return panel_of<Form<q5_k>>(a, b, count, y, y_stride);
    case q6_k:
      return panel_of<Form<q6_k>>(a, b, count, y, y_stride);
    case q8_0:
      return panel_of<Form<q8_0>>(a, b, count, y, y_stride);
    case q4_1:
    case q5_1:
      return panel_of<OtherForm<32, true>>(a, b, count, y, y_stride);
    case q2_k:
      return panel_of<OtherForm<256, true>>(a, b, count, y, y_stride);
    case q3_k:
    case iq4_xs:
      return panel_of<OtherForm<256, false>>(a, b, count, y, y_stride);
    default:
      return panel_of<OtherForm<32, false>>(a, b, count, y, y_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

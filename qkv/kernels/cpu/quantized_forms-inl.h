// Rows of B decoded into a panel, side by side, for the products of many rows of activations. The panel holds
// small numbers without sign in bytes, four neighbours along k in a lane, and others in 16 bits, two in a
// lane.
#if defined(QKV_KERNELS_CPU_QUANTIZED_FORMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_QUANTIZED_FORMS_INL_H
#undef QKV_KERNELS_CPU_QUANTIZED_FORMS_INL_H
#else
#define QKV_KERNELS_CPU_QUANTIZED_FORMS_INL_H
#endif

#include "qkv/kernels/cpu/quantized_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// How a panel holds blocks of a type: elements of type `Element`; their groups' scales and what they are too
// large by, where they have that. kVnni: the processor has AVX-512's VNNI.
template <WeightType kType, bool vnni>
struct Sizes {
  static constexpr int kElements = static_cast<int>(layout_of(kType).elements);
  static constexpr bool kMinima = has_minima(kType), kVnni = vnni;
};
template <WeightType kType, bool vnni>
struct InBytes : Sizes<kType, vnni> {
  using Element = uint8_t;
  static constexpr bool kScaled = false, kOwnOffsets = false;
  static constexpr int kOffset = 0;  // that of every element, unless groups have their own
};
template <WeightType, bool vnni>
struct Form;

template <bool vnni>
struct Form<WeightType::q4_0, vnni> : InBytes<WeightType::q4_0, vnni> {
  using Block = BlockQ40;
  static constexpr int kMost = 15, kGroup = 32, kOffset = 8;
  static HWY_INLINE __m256i run(const Block& b, int) { return nibbles(b.qs); }
};
template <bool vnni>
struct Form<WeightType::mxfp4, vnni> : InBytes<WeightType::mxfp4, vnni> {
  using Block = BlockMxfp4;
  static constexpr int kMost = 24, kGroup = 32, kOffset = 12;
  static HWY_INLINE __m256i run(const Block& b, int) {
    const __m256i table =
        _mm256_add_epi8(_mm256_broadcastsi128_si256(load_128(kMxfp4Values)), _mm256_set1_epi8(kOffset));
    return _mm256_shuffle_epi8(table, nibbles(b.qs));
  }
};
template <class Block_, int kMost_, bool vnni>
struct WithMinima : InBytes<Block_::kType, vnni> {
  using Block = Block_;
  static constexpr int kMost = kMost_, kGroup = 32;
  static constexpr bool kScaled = true;
  static HWY_INLINE __m256i run(const Block& b, int i) { return numbers_of_32(b, i / 2, i % 2 == 1); }
  static HWY_INLINE __m256i scales(const Block& b, int) {
    return vnni ? _mm256_cvtepu8_epi32(both_of(b)) : twice_in_lanes(both_of(b));
  }
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
template <bool vnni>
struct Form<WeightType::q4_k, vnni> : WithMinima<BlockQ4K, 15, vnni> {};
template <bool vnni>
struct Form<WeightType::q5_k, vnni> : WithMinima<BlockQ5K, 31, vnni> {};
template <>
struct Form<WeightType::q6_k, false> : InBytes<WeightType::q6_k, false> {
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
struct Form<WeightType::q8_0, false> : Sizes<WeightType::q8_0, false> {
  using Block = BlockQ80;
  using Element = int16_t;
  static HWY_INLINE __m256i half_run(const Block& b, int i) {
    return _mm256_cvtepi8_epi16(load_128(b.qs + 16 * i));
  }
};
template <>
struct Form<WeightType::q8_0, true> : InBytes<WeightType::q8_0, true> {
  using Block = BlockQ80;
  static constexpr int kGroup = 32, kOffset = 128;
  static HWY_INLINE __m256i run(const Block& b, int) {
    return _mm256_xor_si256(load_256(b.qs), _mm256_set1_epi8(-128));
  }
};
// Groups of 16 are too short for a scale of their own to be worth it: numbers have their scales in them.
template <>
struct Form<WeightType::q6_k, true> : Sizes<WeightType::q6_k, true> {
  using Block = BlockQ6K;
  using Element = int16_t;
  static HWY_INLINE __m256i half_run(const Block& b, int i) {
    const __m256i run = six_bits(b, i / 8, i / 2 % 4);
    const __m128i half = i % 2 == 0 ? _mm256_castsi256_si128(run) : _mm256_extracti128_si256(run, 1);
    return _mm256_mullo_epi16(_mm256_sub_epi16(_mm256_cvtepu8_epi16(half), _mm256_set1_epi16(32)),
                              _mm256_set1_epi16(b.scales[i]));
  }
};

// Types without a form of their own.
template <int kElements_, bool kMinima_, bool vnni>
struct OtherForm {
  using Element = int16_t;
  static constexpr int kElements = kElements_;
  static constexpr bool kMinima = kMinima_, kVnni = vnni;
};

// Columns are rows of B. Numbers of one lane are neighbours along k.
template <class F, int64_t kColumns_, int64_t kDepth_>
struct Panel {
  using Element = typename F::Element;
  static constexpr bool kBytes = sizeof(Element) == 1;
  static constexpr int64_t kInLane = kBytes ? 4 : 2, kElements = F::kElements, kColumns = kColumns_;
  static constexpr int64_t kDepth = kDepth_;  // elements at a time: whole blocks
  static constexpr int64_t kBlocks = kDepth / kElements, kGroups = kDepth / kMinimumGroup;
  alignas(64) Element w[kDepth / kInLane][kColumns][kInLane];
  alignas(64) int16_t scales[kGroups][kColumns][2];       // both of a lane are the same; kVnni: 32 bits
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
    // The next eight rows: a run of blocks is too short for the processor to see where reading goes on.
    const std::ptrdiff_t ahead = 8 * (rows[1] - rows[0]);
    const D8F df;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t first = i * kElements;
      for (int j = 0; j < 8; ++j)
        for (size_t line = 0; line < sizeof(typename F::Block); line += 64)
          __builtin_prefetch(reinterpret_cast<const char*>(row[j]) + ahead + line);
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
        for (int half = 0; half < kElements / 16; ++half) {
          for (int j = 0; j < 8; ++j) v[j] = F::half_run(*row[j], half);
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

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

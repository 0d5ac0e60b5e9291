// Products of rows of activations by rows of a weight, each read along k: lane i of a vector sums elements i,
// i + lanes, i + 2 lanes, ... in order, and the lanes are added at the end. So an element has the same bits
// whatever the other rows are, and whatever stays in the caches meanwhile.
#if defined(QKV_KERNELS_CPU_ROW_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_ROW_PRODUCT_INL_H
#undef QKV_KERNELS_CPU_ROW_PRODUCT_INL_H
#else
#define QKV_KERNELS_CPU_ROW_PRODUCT_INL_H
#endif

#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// c = b a for each of a few rows a. Memory sets the pace, so each vector of b is loaded once for all rows,
// and b is read as two streams, each in the order it lies in, and ahead of its use: the processor's own
// prefetching ends where a page ends.
template <int kRows, int kStreams, typename T>
HWY_INLINE void thin_streams(const RowProduct<T>& p, int64_t begin, int64_t rows) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kAhead = 2048;  // bytes
  for (int64_t j = begin; j < begin + rows; ++j) {
    VF sums[kRows][kStreams];
    for (auto& row : sums)
      for (VF& s : row) s = hn::Zero(d);
    const T* b[kStreams];
    for (int s = 0; s < kStreams; ++s) b[s] = p.b + (j + s * rows) * p.b_stride;
    const auto add = [&](int64_t l, int64_t n) HWY_ATTR {
      VF bs[kStreams];
      for (int s = 0; s < kStreams; ++s) bs[s] = load_part(d, b[s] + l, n);
      for (int r = 0; r < kRows; ++r) {
        const VF x = load_part(d, p.a + r * p.a_stride + l, n);
        for (int s = 0; s < kStreams; ++s) sums[r][s] = hn::MulAdd(x, bs[s], sums[r][s]);
      }
    };
    constexpr int64_t kLine = 64 / sizeof(T);  // elements of a cache line
    int64_t l = 0;
    for (; l + kLine <= p.k; l += kLine) {
      for (int s = 0; s < kStreams; ++s) __builtin_prefetch(reinterpret_cast<const char*>(b[s] + l) + kAhead);
      for (int64_t i = l; i < l + kLine; i += lanes) add(i, lanes);
    }
    for (; l < p.k; l += lanes) add(l, std::min(lanes, p.k - l));
    for (int r = 0; r < kRows; ++r)
      for (int s = 0; s < kStreams; ++s) p.c[r * p.c_stride + j + s * rows] = sum_of(d, sums[r][s]);
  }
}

template <int kRows, typename T>
void thin_rows(const RowProduct<T>& p, int64_t begin, int64_t end) {
  const int64_t half = (end - begin) / 2;
  thin_streams<kRows, 2>(p, begin, half);
  thin_streams<kRows, 1>(p, begin + 2 * half, end - begin - 2 * half);
}

// Rows of A and of B in a tile, whose sums stay in registers.
#if HWY_TARGET <= HWY_AVX3
constexpr int64_t kRowsInTile = 6;
#else
constexpr int64_t kRowsInTile = 3;
#endif
constexpr int64_t kColumnsInTile = 4;

// Elements of k, rows of A and rows of B that stay in the caches: those of A in L2, eight of B in L1.
constexpr int64_t kRunOfK = 512, kRowsOfA = 96, kRowsOfB = 128, kPackedRows = 2 * kColumnsInTile;

// Memory for so many rows of A. B's rows are cleared, since a product with few of them computes with all.
struct RowBlocks {
  explicit RowBlocks(int64_t rows)
      : a(rows * kRunOfK), b(kPackedRows * kRunOfK), sums(rows * kRowsOfB * HWY_LANES(float)) {
    std::memset(b.data(), 0, kPackedRows * kRunOfK * sizeof(float));
  }
  Scratch a, b;
  Scratch sums;  // a vector for each row and column
};

// Adds the products of `length` elements to the sums of a tile, one vector each, or begins them.
template <int64_t kRows>
HWY_INLINE void add_tile(const float* a, const float* b, int64_t length, bool first, float* sums) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  VF s[kRows][kColumnsInTile];
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumnsInTile; ++j)
      s[i][j] = first ? hn::Zero(d) : hn::LoadU(d, sums + (i * kRowsOfB + j) * kLanes);
  for (int64_t l = 0; l < length; l += kLanes) {
    VF x[kRows];
    for (int64_t i = 0; i < kRows; ++i) x[i] = hn::LoadU(d, a + i * kRunOfK + l);
    for (int64_t j = 0; j < kColumnsInTile; ++j) {
      const VF y = hn::LoadU(d, b + j * kRunOfK + l);
      for (int64_t i = 0; i < kRows; ++i) s[i][j] = hn::MulAdd(x[i], y, s[i][j]);
    }
  }
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumnsInTile; ++j) hn::StoreU(s[i][j], d, sums + (i * kRowsOfB + j) * kLanes);
}

// Packs `length` elements of `count` rows, with zeros up to a whole vector; other rows are left.
template <typename T>
HWY_INLINE void pack_rows(const T* x, int64_t stride, int64_t count, int64_t length, float* out) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  for (int64_t r = 0; r < count; ++r, x += stride, out += kRunOfK) {
    int64_t l = 0;
    for (; l + 4 * kLanes <= length; l += 4 * kLanes)
      for (int64_t i = l; i < l + 4 * kLanes; i += kLanes) store(d, load(d, x + i), out + i);
    for (; l < length; l += kLanes) store(d, load_part(d, x + l, std::min(kLanes, length - l)), out + l);
  }
}

template <typename T>
void many_rows(const RowProduct<T>& p, int64_t begin, int64_t end) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  const RowBlocks blocks(std::min(kRowsOfA, p.rows));
  for (int64_t j0 = begin; j0 < end; j0 += kRowsOfB)
    for (int64_t r0 = 0; r0 < p.rows; r0 += kRowsOfA) {
      const int64_t columns = std::min(kRowsOfB, end - j0), rows = std::min(kRowsOfA, p.rows - r0);
      for (int64_t l0 = 0; l0 < p.k; l0 += kRunOfK) {
        const int64_t length = std::min(kRunOfK, p.k - l0);
        pack_rows(p.a + r0 * p.a_stride + l0, p.a_stride, rows, length, blocks.a.data());
        for (int64_t j = 0; j < columns; j += kPackedRows) {
          pack_rows(p.b + (j0 + j) * p.b_stride + l0, p.b_stride, std::min(kPackedRows, columns - j), length,
                    blocks.b.data());
          for (int64_t r = 0; r < rows;) {
            const int64_t count = r + kRowsInTile <= rows ? kRowsInTile : 1;
            for (int64_t g = 0; g < kPackedRows; g += kColumnsInTile) {
              const float *a = blocks.a.data() + r * kRunOfK, *b = blocks.b.data() + g * kRunOfK;
              float* sums = blocks.sums.data() + (r * kRowsOfB + j + g) * kLanes;
              count == 1 ? add_tile<1>(a, b, length, l0 == 0, sums)
                         : add_tile<kRowsInTile>(a, b, length, l0 == 0, sums);
            }
            r += count;
          }
        }
      }
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < columns; ++j)
          p.c[(r0 + r) * p.c_stride + j0 + j] =
              sum_of(d, hn::LoadU(d, blocks.sums.data() + (r * kRowsOfB + j) * kLanes));
    }
}

template <typename T>
void row_product(const RowProduct<T>& p, int64_t begin, int64_t end) {
  using Function = void (*)(const RowProduct<T>&, int64_t, int64_t);
  static constexpr Function kByRows[kFewRows] = {thin_rows<1, T>, thin_rows<2, T>, thin_rows<3, T>,
                                                 thin_rows<4, T>, thin_rows<5, T>, thin_rows<6, T>,
                                                 thin_rows<7, T>, thin_rows<8, T>};
  p.rows <= kFewRows ? kByRows[p.rows - 1](p, begin, end) : many_rows(p, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

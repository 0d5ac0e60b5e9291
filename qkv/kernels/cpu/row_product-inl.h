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
      for (int s = 0; s < kStreams; ++s) p.c[r * p.c_stride + j + s * rows] = sum_of(sums[r][s]);
  }
}

template <int kRows, typename T>
void thin_rows(const RowProduct<T>& p, int64_t begin, int64_t end) {
  const int64_t half = (end - begin) / 2;
  thin_streams<kRows, 2>(p, begin, half);
  thin_streams<kRows, 1>(p, begin + 2 * half, end - begin - 2 * half);
}

// A tile: rows of A by rows of B. Its sums stay in registers, as many vectors as each has lanes.
constexpr int64_t kColumnsInTile = HWY_MIN(4, HWY_LANES(float)),
                  kRowsInTile = HWY_LANES(float) / kColumnsInTile;
constexpr int64_t kSumsOfTile = HWY_LANES(float) * HWY_LANES(float);

// Elements of k, rows of A and rows of B that stay in the caches: those of A in L2, eight of B in L1.
constexpr int64_t kRunOfK = 512, kRowsOfA = 96, kRowsOfB = 128, kPackedRows = 8;

// A tile's part of C, [kRowsInTile, kColumnsInTile] or less.
struct TileOfC {
  float* c;
  int64_t stride, columns;
};

// Adds the products of `length` elements, a multiple of a vector's, to the sums of a tile. Rows of A and B
// are `length` apart. In the first run of k sums begin at zero. In the last one they are completed and
// written to c, in others to `sums`.
template <int64_t kRows>
void add_tile(const float* a, const float* b, int64_t length, bool first, bool last, float* sums,
              const TileOfC& c) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  VF s[kLanes];
  for (int64_t i = 0; i < kLanes; ++i)
    s[i] = first || i >= kRows * kColumnsInTile ? hn::Zero(d) : hn::LoadU(d, sums + i * kLanes);
  for (int64_t l = 0; l < length; l += kLanes) {
    VF x[kRows];
    for (int64_t i = 0; i < kRows; ++i) x[i] = hn::LoadU(d, a + i * length + l);
    for (int64_t j = 0; j < kColumnsInTile; ++j) {
      const VF y = hn::LoadU(d, b + j * length + l);
      for (int64_t i = 0; i < kRows; ++i)
        s[i * kColumnsInTile + j] = hn::MulAdd(x[i], y, s[i * kColumnsInTile + j]);
    }
  }
  if (!last) {
    for (int64_t i = 0; i < kRows * kColumnsInTile; ++i) hn::StoreU(s[i], d, sums + i * kLanes);
    return;
  }
  sums_of(s);
  alignas(64) float all[kLanes];
  hn::Store(s[0], d, all);
  for (int64_t i = 0; i < kRows; ++i) {
    const float* from = all + i * kColumnsInTile;
    if (c.columns == kColumnsInTile)
      std::memcpy(c.c + i * c.stride, from, kColumnsInTile * sizeof(float));
    else
      std::copy_n(from, c.columns, c.c + i * c.stride);
  }
}

using AddTile = void (*)(const float*, const float*, int64_t, bool, bool, float*, const TileOfC&);
template <size_t... i>
constexpr std::array<AddTile, sizeof...(i)> tiles_by_rows(std::index_sequence<i...> /*rows*/) {
  return {add_tile<i + 1>...};
}
constexpr auto kAddTile = tiles_by_rows(std::make_index_sequence<kRowsInTile>());

// Packs rows of `length` elements `wide` apart, with zeros up to there.
template <typename T>
HWY_INLINE void pack_rows(const T* x, int64_t stride, int64_t count, int64_t length, int64_t wide,
                          float* out) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  for (int64_t r = 0; r < count; ++r, x += stride, out += wide) {
    int64_t l = 0;
    for (; l + 4 * kLanes <= length; l += 4 * kLanes)
      for (int64_t i = l; i < l + 4 * kLanes; i += kLanes) store(d, load(d, x + i), out + i);
    for (; l < length; l += kLanes) store(d, load_part(d, x + l, std::min(kLanes, length - l)), out + l);
  }
}

template <typename T>
void many_rows(const RowProduct<T>& p, int64_t begin, int64_t end) {
  const int64_t most = std::min(kRowsOfA, p.rows), widest = padded(std::min(kRunOfK, p.k)),
                tiles = (most + kRowsInTile - 1) / kRowsInTile;
  const bool one_run = p.k <= kRunOfK;
  const Scratch packed_a(most * widest), packed_b(kPackedRows * widest),
      sums(one_run ? 0 : tiles * (kRowsOfB / kColumnsInTile) * kSumsOfTile);
  for (int64_t j0 = begin; j0 < end; j0 += kRowsOfB)
    for (int64_t r0 = 0; r0 < p.rows; r0 += kRowsOfA) {
      const int64_t columns = std::min(kRowsOfB, end - j0), rows = std::min(kRowsOfA, p.rows - r0);
      for (int64_t l0 = 0; l0 < p.k; l0 += kRunOfK) {
        const int64_t length = std::min(kRunOfK, p.k - l0), wide = padded(length);
        const bool first = l0 == 0, last = l0 + length == p.k;
        pack_rows(p.a + r0 * p.a_stride + l0, p.a_stride, rows, length, wide, packed_a.data());
        float* tile = sums.data();
        for (int64_t j = 0; j < columns; j += kPackedRows) {
          const int64_t n = std::min(kPackedRows, columns - j);
          float* const b = packed_b.data();
          pack_rows(p.b + (j0 + j) * p.b_stride + l0, p.b_stride, n, length, wide, b);
          std::memset(b + n * wide, 0, (kPackedRows - n) * wide * sizeof(float));
          for (int64_t r = 0; r < rows; r += kRowsInTile)
            for (int64_t g = 0; g < n; g += kColumnsInTile, tile += one_run ? 0 : kSumsOfTile) {
              const TileOfC c{p.c + (r0 + r) * p.c_stride + j0 + j + g, p.c_stride,
                              std::min(kColumnsInTile, n - g)};
              kAddTile[std::min(kRowsInTile, rows - r) - 1](packed_a.data() + r * wide, b + g * wide, wide,
                                                            first, last, tile, c);
            }
        }
      }
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

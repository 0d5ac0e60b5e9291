// Matrix products with f32 sums. Blocks of A and B, whatever their type and layout, are packed into panels
// in the order in which the inner loop reads them (Goto & van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008). The inner loop keeps a tile of C in registers.
#if defined(QKV_KERNELS_CPU_PRODUCT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_PRODUCT_INL_H
#undef QKV_KERNELS_CPU_PRODUCT_INL_H
#else
#define QKV_KERNELS_CPU_PRODUCT_INL_H
#endif

#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// The tile of sums: as many as registers hold beside kTileVectors vectors of B and one element of A.
#if HWY_TARGET <= HWY_AVX3
constexpr int64_t kTileRows = 12, kTileVectors = 2;
#else
constexpr int64_t kTileRows = 4, kTileVectors = 3;
#endif
constexpr int64_t kTileColumns = kTileVectors * HWY_LANES(float);

// A panel of B, kDepth x kTileColumns, stays in the L1 cache; a block of A, kRows x kDepth, stays in L2.
constexpr int64_t kDepth = 256, kRows = 40 * kTileRows, kColumns = 2048;

// Packs `depth` rows of `count` <= kWidth elements at x, x + stride, ... as rows of kWidth, padded with
// zeros.
template <int64_t kWidth, typename T>
HWY_INLINE void pack_straight(const T* x, int64_t stride, int64_t depth, int64_t count, float* out) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  for (int64_t l = 0; l < depth; ++l, out += kWidth) {
    const T* from = x + l * stride;
    if (count == kWidth && kWidth % kLanes == 0) {
      for (int64_t c = 0; c < kWidth; c += kLanes) store(d, load(d, from + c), out + c);
    } else {
      for (int64_t c = 0; c < kWidth; ++c) out[c] = c < count ? static_cast<float>(from[c]) : 0.0f;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR  // Highway also compiles the scalar target, but nothing runs it
// Transposes four elements of each of four rows into four rows of `width`, converted to f32.
template <typename T>
HWY_INLINE void turn_4x4(const T* x, int64_t stride, float* out, int64_t width) {
  const hn::CappedTag<float, 4> d;
  const hn::Repartition<uint64_t, decltype(d)> pairs;
  const auto row = [&](int64_t r) HWY_ATTR {
    if constexpr (std::is_same_v<T, float>) {
      return hn::LoadU(d, x + r * stride);
    } else {
      const hn::Rebind<uint16_t, decltype(d)> half;
      const hn::RebindToUnsigned<decltype(d)> bits;
      const auto h = hn::LoadU(half, reinterpret_cast<const uint16_t*>(x + r * stride));
      return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, h)));
    }
  };
  const auto r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
  const auto low = [&](auto p, auto q) HWY_ATTR { return hn::BitCast(pairs, hn::InterleaveLower(d, p, q)); };
  const auto high = [&](auto p, auto q) HWY_ATTR { return hn::BitCast(pairs, hn::InterleaveUpper(d, p, q)); };
  const auto a = low(r0, r1), b = low(r2, r3), e = high(r0, r1), f = high(r2, r3);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)), d, out + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, e, f)), d, out + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, e, f)), d, out + 3 * width);
}
#else
template <typename T>
HWY_INLINE void turn_4x4(const T*, int64_t, float*, int64_t) {}
#endif

// Packs `count` <= kWidth columns, stored as rows of `depth` elements at x, x + stride, ..., in the same
// way.
template <int64_t kWidth, typename T>
HWY_INLINE void pack_turned(const T* x, int64_t stride, int64_t depth, int64_t count, float* out) {
  constexpr int64_t kRun = 16;  // elements of a row at a time: a cache line; their output stays in L1
  const int64_t whole = HWY_TARGET == HWY_SCALAR ? 0 : count / 4 * 4;
  for (int64_t l0 = 0; l0 < depth; l0 += kRun) {
    const int64_t run = std::min(kRun, depth - l0), fours = run / 4 * 4;
    for (int64_t c = 0; c < whole; c += 4)
      for (int64_t l = l0; l < l0 + fours; l += 4)
        turn_4x4(x + c * stride + l, stride, out + l * kWidth + c, kWidth);
    for (int64_t c = 0; c < kWidth; ++c)
      for (int64_t l = c < whole ? l0 + fours : l0; l < l0 + run; ++l)
        out[l * kWidth + c] = c < count ? static_cast<float>(x[c * stride + l]) : 0.0f;
  }
}

// Packs rows [i, i + rows) and k [l, l + depth) of A as panels of kTileRows.
template <typename T>
void pack_a(const Product& p, int64_t i, int64_t rows, int64_t l, int64_t depth, float* out) {
  const T* a = static_cast<const T*>(p.a.data);
  for (int64_t r = 0; r < rows; r += kTileRows, out += kTileRows * depth) {
    const int64_t count = std::min(kTileRows, rows - r);
    if (p.a.transposed)
      pack_straight<kTileRows>(a + l * p.a.stride + i + r, p.a.stride, depth, count, out);
    else
      pack_turned<kTileRows>(a + (i + r) * p.a.stride + l, p.a.stride, depth, count, out);
  }
}

// Packs columns [j, j + columns) and k [l, l + depth) of B as panels of kTileColumns.
template <typename T>
void pack_b(const Product& p, int64_t j, int64_t columns, int64_t l, int64_t depth, float* out) {
  const T* b = static_cast<const T*>(p.b.data);
  for (int64_t c = 0; c < columns; c += kTileColumns, out += kTileColumns * depth) {
    const int64_t count = std::min(kTileColumns, columns - c);
    if (p.b.transposed)
      pack_turned<kTileColumns>(b + (j + c) * p.b.stride + l, p.b.stride, depth, count, out);
    else
      pack_straight<kTileColumns>(b + l * p.b.stride + j + c, p.b.stride, depth, count, out);
  }
}

// The destination of a tile's sums: the part of C at `c`, of which rows [0, rows) and columns [0, columns)
// exist. `add`: C already holds the sums of earlier blocks of k, or a value to add to.
struct TileOutput {
  float* c;
  int64_t stride, rows, columns;
  const float* bias;  // bias to add, with the first block of k alone; or null
  bool add;
};

HWY_INLINE void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t depth,
                              const TileOutput& out) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  VF s[kTileRows][kTileVectors];
  for (int64_t r = 0; r < kTileRows; ++r)
    for (int64_t v = 0; v < kTileVectors; ++v) s[r][v] = hn::Zero(d);
  for (int64_t l = 0; l < depth; ++l, a += kTileRows, b += kTileColumns) {
    VF bs[kTileVectors];
    for (int64_t v = 0; v < kTileVectors; ++v) bs[v] = hn::Load(d, b + v * kLanes);
    HWY_UNROLL(12)
    for (int64_t r = 0; r < kTileRows; ++r) {
      const VF x = hn::Set(d, a[r]);
      for (int64_t v = 0; v < kTileVectors; ++v) s[r][v] = hn::MulAdd(x, bs[v], s[r][v]);
    }
  }
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t v = 0; v < kTileVectors && v * kLanes < out.columns; ++v) {
      const int64_t n = std::min(kLanes, out.columns - v * kLanes);
      float* c = out.c + r * out.stride + v * kLanes;
      VF sum = s[r][v];
      if (out.bias) sum = hn::Add(sum, load_part(d, out.bias + v * kLanes, n));
      if (out.add) sum = hn::Add(sum, load_part(d, c, n));
      store_part(d, sum, c, n);
    }
}

// Computes columns [j, j + columns) of C in f32, at `c`.
template <typename T>
void multiply_columns(const Product& p, int64_t j, int64_t columns, bool accumulate, float* c, int64_t stride,
                      float* packed_a, float* packed_b) {
  for (int64_t l = 0; l < p.k; l += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - l);
    pack_b<T>(p, j, columns, l, depth, packed_b);
    for (int64_t i = 0; i < p.m; i += kRows) {
      const int64_t rows = std::min(kRows, p.m - i);
      pack_a<T>(p, i, rows, l, depth, packed_a);
      for (int64_t jr = 0; jr < columns; jr += kTileColumns)
        for (int64_t ir = 0; ir < rows; ir += kTileRows)
          multiply_tile(packed_a + ir * depth, packed_b + jr * depth, depth,
                        {c + (i + ir) * stride + jr, stride, std::min(kTileRows, rows - ir),
                         std::min(kTileColumns, columns - jr), p.bias && l == 0 ? p.bias + j + jr : nullptr,
                         accumulate || l > 0});
    }
  }
}

template <typename T>
void product_of(const Product& p, float* scratch) {
  float* packed_a = scratch;
  float* packed_b = packed_a + kRows * kDepth;
  float* sums = packed_b + (kColumns + kTileColumns) * kDepth;
  const int64_t most = p.out == DType::f32 ? kColumns : kColumns / 4;
  for (int64_t j = 0; j < p.n; j += most) {
    const int64_t columns = std::min(most, p.n - j);
    if (p.out == DType::f32) {
      multiply_columns<T>(p, j, columns, p.accumulate, static_cast<float*>(p.c) + j, p.c_stride, packed_a,
                          packed_b);
      continue;
    }
    BFloat16* c = static_cast<BFloat16*>(p.c) + j;
    if (p.accumulate)
      for (int64_t r = 0; r < p.m; ++r) to_f32(columns, c + r * p.c_stride, sums + r * columns);
    multiply_columns<T>(p, j, columns, p.accumulate, sums, columns, packed_a, packed_b);
    for (int64_t r = 0; r < p.m; ++r) from_f32(columns, sums + r * columns, c + r * p.c_stride);
  }
}

void product(const Product& p, float* scratch) {
  p.a.type == WeightType::f32 ? product_of<float>(p, scratch) : product_of<BFloat16>(p, scratch);
}

int64_t product_scratch(const Product& p) {
  const int64_t packed = kRows * kDepth + (kColumns + kTileColumns) * kDepth;
  return packed + (p.out == DType::f32 ? 0 : p.m * std::min(p.n, kColumns / 4));
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

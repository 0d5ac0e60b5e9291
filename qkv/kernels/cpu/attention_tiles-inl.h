// Attention in bf16, with its five products on the processor's tiles (AMX). The order of computation is
// that of attention-inl.h. Score tiles are transposed, with one key per row and one (query, head) pair per
// lane, so that the softmax is a vertical operation. Two things differ. P and dS are rounded to bf16, as
// tiles require. Operands are laid out as rows along k (A) or as pairs along k (B; tile/block.h). In the
// inner loop only V of the forward pass is transposed; K, Q and the softmax's output are not.
#if defined(QKV_KERNELS_CPU_ATTENTION_TILES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_ATTENTION_TILES_INL_H
#undef QKV_KERNELS_CPU_ATTENTION_TILES_INL_H
#else
#define QKV_KERNELS_CPU_ATTENTION_TILES_INL_H
#endif

#include "qkv/kernels/cpu/attention-inl.h"
#include "qkv/kernels/cpu/simd-inl.h"
#include "qkv/kernels/tile/block.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_AVX3

inline constexpr int64_t kVector = 16;    // f32, or pairs of bf16
inline constexpr int64_t kTileStep = 32;  // extents of a product on tiles are multiples of this

HWY_INLINE int64_t tile_padded(int64_t n) {
  return (n + kTileStep - 1) / kTileStep * kTileStep;
}

// Configures the thread's tiles while an attention task runs.
template <TileUnit unit>
class TileScope {
 public:
  TileScope() {
    if constexpr (unit == TileUnit::amx) tile::configure_amx();
  }
  ~TileScope() {
    if constexpr (unit == TileUnit::amx) tile::release_amx();
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

  // C[m, n] (+)= A[m, k] B[k, n]; b: [k / 2, n] pairs.
  static void product(int64_t m, int64_t n, int64_t k, const BFloat16* a, int64_t a_stride, const uint32_t* b,
                      int64_t b_stride, float* c, int64_t c_stride, bool accumulate) {
    const tile::BlockProduct p{
        m, n, k, a, a_stride, reinterpret_cast<const BFloat16*>(b), 2 * b_stride, c, c_stride, accumulate};
    if constexpr (unit == TileUnit::amx)
      tile::multiply_block_amx(p);
    else
      tile::multiply_block_emulated(p);
  }
};

// Interleaves elements of two rows into pairs.
HWY_INLINE VU pairs_of(const BFloat16* even, const BFloat16* odd) {
  const DU du;
  const hn::Rebind<uint16_t, DF> half;
  const auto low = hn::PromoteTo(du, hn::LoadU(half, reinterpret_cast<const uint16_t*>(even)));
  const auto high = hn::PromoteTo(du, hn::LoadU(half, reinterpret_cast<const uint16_t*>(odd)));
  return hn::Or(low, hn::ShiftLeft<16>(high));
}

// Three ways to lay out a bf16 matrix x [rows, width] for a product; both extents are multiples of 32. As B
// with k along the rows' elements: out [width / 2, rows] pairs.
HWY_NOINLINE void pair_elements(int64_t rows, int64_t width, const BFloat16* x, uint32_t* out) {
  const DU du;
  for (int64_t r = 0; r < rows; r += kVector)
    for (int64_t p = 0; p < width / 2; p += kVector) {
      VU t[kVector];
      for (int64_t i = 0; i < kVector; ++i)
        t[i] = hn::LoadU(du, reinterpret_cast<const uint32_t*>(x + (r + i) * width) + p);
      transpose(t);
      for (int64_t i = 0; i < kVector; ++i) hn::StoreU(t[i], du, out + (p + i) * rows + r);
    }
}
// As B with k along the rows: out [rows / 2, width] pairs.
HWY_NOINLINE void pair_rows(int64_t rows, int64_t width, const BFloat16* x, uint32_t* out) {
  for (int64_t r = 0; r < rows; r += 2)
    for (int64_t c = 0; c < width; c += kVector)
      hn::StoreU(pairs_of(x + r * width + c, x + (r + 1) * width + c), DU(), out + r / 2 * width + c);
}
// As A with k along the rows: out [width, rows].
HWY_NOINLINE void transpose_rows(int64_t rows, int64_t width, const BFloat16* x, BFloat16* out) {
  const DU du;
  for (int64_t r = 0; r < rows; r += 2 * kVector)
    for (int64_t c = 0; c < width; c += kVector) {
      VU t[kVector];
      for (int64_t i = 0; i < kVector; ++i)
        t[i] = pairs_of(x + (r + 2 * i) * width + c, x + (r + 2 * i + 1) * width + c);
      transpose(t);
      for (int64_t i = 0; i < kVector; ++i)
        hn::StoreU(t[i], du, reinterpret_cast<uint32_t*>(out + (c + i) * rows + r));
    }
}

// Copies `count` rows of `width` elements, found at row(i), to rows of tile_padded(width). Fills the
// padding, and rows up to tile_padded(count), with zeros.
template <typename Row>
HWY_INLINE void copy_rows(int64_t count, int64_t width, const Row& row, BFloat16* out) {
  const hn::ScalableTag<uint16_t> d;  // a vector is a tile's step
  const int64_t wide = tile_padded(width), whole = width / kTileStep * kTileStep;
  for (int64_t i = 0; i < count; ++i) {
    const auto* from = reinterpret_cast<const uint16_t*>(row(i));
    auto* to = reinterpret_cast<uint16_t*>(out + i * wide);
    for (int64_t c = 0; c < whole; c += kTileStep) hn::StoreU(hn::LoadU(d, from + c), d, to + c);
    if (whole == wide) continue;
    std::memcpy(to + whole, from + whole, (width - whole) * sizeof(BFloat16));
    std::memset(to + width, 0, (wide - width) * sizeof(BFloat16));
  }
  std::memset(out + count * wide, 0, (tile_padded(count) - count) * wide * sizeof(BFloat16));
}
HWY_INLINE void copy_keys(const Attention<BFloat16>& a, int64_t s, const BFloat16* x, int64_t stride,
                          int64_t width, int64_t k0, int64_t k1, BFloat16* out) {
  copy_rows(
      k1 - k0, width, [&](int64_t i) { return x + row_of_key(a, s, k0 + i) * stride; }, out);
}
HWY_INLINE void copy_lanes(const LaneTile<BFloat16>& t, const BFloat16* x, int64_t stride, int64_t width,
                           BFloat16* out) {
  copy_rows(
      t.count, width, [&](int64_t lane) { return x + t.row(lane) * stride + t.head(lane) * width; }, out);
}

// Returns bits whose upper half is x rounded to bf16; the lower half is arbitrary. The processor's own NaN
// stays NaN.
HWY_INLINE VU rounded_bits(VF x) {
  const DU du;
  const VU u = hn::BitCast(du, x);
  return hn::Add(u, hn::Add(hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1)), hn::Set(du, 0x7FFF)));
}
// Pairs of an even and an odd row.
HWY_INLINE VU pairs_of_rounded(VU even, VU odd) {
  return hn::Or(hn::ShiftRight<16>(even), hn::And(odd, hn::Set(DU(), 0xFFFF0000)));
}
HWY_INLINE void store_rounded(VU x, BFloat16* to) {
  const hn::Rebind<uint16_t, DF> half;
  const hn::RebindToSigned<DF> di;
  hn::StoreU(hn::DemoteTo(half, hn::BitCast(di, hn::ShiftRight<16>(x))), half,
             reinterpret_cast<uint16_t*>(to));
}

// scores[keys, lanes] -> P = exp(scale scores - new maximum), after dropout, as pairs of keys
// [keys / 2, lanes]. Updates the running maximum and sum, and sets correction[lane] = exp(old maximum - new
// maximum). Returns true if a correction is not 1.
HWY_INLINE bool softmax_pairs(const Attention<BFloat16>& a, const LaneKeys<BFloat16>& keys_of_lanes,
                              int64_t columns, int64_t k0, int64_t count, const float* scores, float* maximum,
                              float* sum, float* correction, uint32_t* pairs) {
  const DF d;
  const DU du;
  const VF scale = hn::Set(d, a.scale);
  const uint32_t threshold = dropout_threshold(a.dropout.p);
  const float keep_scale = 1 / (1 - a.dropout.p);
  bool corrected = false;
  for (int64_t n = 0; n < columns; n += kVector) {
    const VF old = hn::LoadU(d, maximum + n);
    VF highest = hn::LoadU(d, scores + n);
    for (int64_t j = 1; j < count; ++j) highest = hn::Max(highest, hn::LoadU(d, scores + j * kLanes + n));
    const VF top = hn::Max(old, hn::Mul(highest, scale));
    const VF fix = exponential(d, hn::Sub(old, top));
    corrected |= !hn::AllTrue(d, hn::Eq(old, top));
    VF total = hn::Mul(hn::LoadU(d, sum + n), fix);
    const VU key_a = hn::LoadU(du, keys_of_lanes.a + n), key_b = hn::LoadU(du, keys_of_lanes.b + n);
    const auto probability = [&](int64_t j) HWY_ATTR {
      VF p = exponential(d, hn::MulSub(scale, hn::LoadU(d, scores + j * kLanes + n), top));
      total = hn::Add(total, p);
      if (a.dropout.on())
        p = drop(d, p, dropout_bits_of(du, key_a, key_b, hn::Set(du, static_cast<uint32_t>(k0 + j))),
                 threshold, keep_scale);
      return rounded_bits(p);
    };
    int64_t j = 0;
    for (; j + 2 <= count; j += 2) {
      const VU even = probability(j), odd = probability(j + 1);
      hn::StoreU(pairs_of_rounded(even, odd), du, pairs + j / 2 * kLanes + n);
    }
    if (j < count) {
      hn::StoreU(hn::ShiftRight<16>(probability(j)), du, pairs + j / 2 * kLanes + n);
      j += 2;
    }
    for (; j < tile_padded(count); j += 2) hn::StoreU(hn::Zero(du), du, pairs + j / 2 * kLanes + n);
    hn::StoreU(top, d, maximum + n);
    hn::StoreU(total, d, sum + n);
    hn::StoreU(fix, d, correction + n);
  }
  return corrected;
}

// Pieces of a task's scratch memory, each a multiple of a tile's 16 x 64 bytes.
class Pieces {
 public:
  explicit Pieces(float* memory) : at_(memory) {}
  float* floats(int64_t n) { return std::exchange(at_, at_ + n); }
  BFloat16* bf16(int64_t n) { return reinterpret_cast<BFloat16*>(floats(n / 2)); }
  uint32_t* pairs(int64_t n) { return reinterpret_cast<uint32_t*>(floats(n)); }

 private:
  float* at_;
};

// Lane tiles that share a tile of keys, so that V is transposed for all of them at once.
inline constexpr int64_t kLaneTiles = 4;

// Attention's state of one lane tile.
struct LaneState {
  alignas(64) float maximum[kLanes], sum[kLanes], correction[kLanes];
  uint32_t* q;  // pairs [d_qk / 2, lanes]
  float* o_t;   // [d_vo, lanes]
};

// Lanes [begin, begin + kLaneTiles kLanes) of `pairs`.
template <TileUnit unit>
HWY_NOINLINE void attention_lane_tiles(const Attention<BFloat16>& a, int64_t sequence, int64_t kv_head,
                                       int64_t first_query, int64_t begin, int64_t pairs, float* scratch) {
  const int64_t d_qk = tile_padded(a.d_qk), d_vo = tile_padded(a.d_vo);
  Pieces pieces(scratch);
  BFloat16* k_tile = pieces.bf16(kKeyTile * d_qk);  // [keys, d_qk]
  BFloat16* v_rows = pieces.bf16(kKeyTile * d_vo);  // [keys, d_vo]
  BFloat16* v_t = pieces.bf16(kKeyTile * d_vo);     // [d_vo, keys]
  BFloat16* q_rows = pieces.bf16(kLanes * d_qk);    // [lanes, d_qk]
  float* s_t = pieces.floats(kKeyTile * kLanes);    // [keys, lanes]
  uint32_t* p_t = pieces.pairs(kKeyTile / 2 * kLanes);
  LaneState states[kLaneTiles];
  const int64_t tiles = std::min(kLaneTiles, (pairs - begin + kLanes - 1) / kLanes);
  const auto lane_tile = [&](int64_t i) {
    const int64_t at = begin + i * kLanes;
    return LaneTile<BFloat16>{a, sequence, kv_head, first_query, at, std::min(kLanes, pairs - at)};
  };
  for (int64_t i = 0; i < tiles; ++i) {
    LaneState& state = states[i];
    state.q = pieces.pairs(d_qk / 2 * kLanes);
    state.o_t = pieces.floats(d_vo * kLanes);
    std::fill(state.o_t, state.o_t + d_vo * kLanes, 0.0f);
    const auto t = lane_tile(i);
    begin_softmax(t, state.maximum, state.sum);
    copy_lanes(t, a.q, a.q_stride, a.d_qk, q_rows);
    std::memset(q_rows + tile_padded(t.count) * d_qk, 0,
                (kLanes - tile_padded(t.count)) * d_qk * sizeof(BFloat16));
    pair_elements(kLanes, d_qk, q_rows, state.q);
  }

  const int64_t first_position = lane_tile(0).first_position(),
                end_position = lane_tile(tiles - 1).end_position();
  const Mask mask = a.mask_of(sequence);
  const int64_t end = mask.end_key(end_position, a.key_lengths[sequence]);
  {
    const TileScope<unit> scope;
    for (int64_t k0 = mask.first_key(first_position) / kKeyTile * kKeyTile; k0 < end; k0 += kKeyTile) {
      const int64_t k1 = std::min(end, k0 + kKeyTile), count = k1 - k0, keys = tile_padded(count);
      if (mask.cover(first_position, end_position, k0, k1) == TileCover::empty) continue;
      copy_keys(a, sequence, a.k + kv_head * a.d_qk, a.k_stride, a.d_qk, k0, k1, k_tile);
      copy_keys(a, sequence, a.v + kv_head * a.d_vo, a.v_stride, a.d_vo, k0, k1, v_rows);
      transpose_rows(keys, d_vo, v_rows, v_t);
      for (int64_t i = 0; i < tiles; ++i) {
        const auto t = lane_tile(i);
        const TileCover cover = mask.cover(t.first_position(), t.end_position(), k0, k1);
        if (cover == TileCover::empty) continue;
        LaneState& state = states[i];
        const int64_t columns = tile_padded(t.count);
        scope.product(keys, columns, d_qk, k_tile, d_qk, state.q, kLanes, s_t, kLanes, false);
        // softmax_pairs() scales its input.
        if (a.cap > 0) cap_scores(columns, count, a.scale / a.cap, a.cap / a.scale, s_t, nullptr);
        if (a.term.on()) add_term(t, k0, k1, 1 / a.scale, s_t);
        if (a.pair.on()) add_pair_term(t, k0, k1, 1 / a.scale, s_t);
        if (cover == TileCover::mixed) mask_scores(t, k0, k1, 1 / a.scale, s_t);
        if (softmax_pairs(a, LaneKeys<BFloat16>(t), columns, k0, count, s_t, state.maximum, state.sum,
                          state.correction, p_t))
          scale_lanes(d_vo, columns, state.correction, state.o_t);
        scope.product(d_vo, columns, keys, v_t, keys, p_t, kLanes, state.o_t, kLanes, true);
      }
    }
  }

  const DF d;
  const DU du;
  for (int64_t i = 0; i < tiles; ++i) {
    const auto t = lane_tile(i);
    const LaneState& state = states[i];
    alignas(64) float inverse[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane)
      inverse[lane] = state.sum[lane] > 0 || std::isnan(state.sum[lane]) ? 1 / state.sum[lane] : 0;
    scale_lanes(d_vo, kLanes, inverse, state.o_t);
    for (int64_t n = 0; n < t.count; n += kVector)
      for (int64_t c = 0; c < a.d_vo; c += kVector) {
        VU x[kVector];
        for (int64_t r = 0; r < kVector; ++r)
          x[r] = hn::BitCast(du, hn::LoadU(d, state.o_t + (c + r) * kLanes + n));
        transpose(x);
        for (int64_t lane = n; lane < std::min(t.count, n + kVector); ++lane)
          store_part(d, hn::BitCast(d, x[lane - n]),
                     a.out + t.row(lane) * a.out_stride + t.head(lane) * a.d_vo + c,
                     std::min(kVector, a.d_vo - c));
      }
    for (int64_t lane = 0; lane < t.count; ++lane)
      a.lse[t.row(lane) * a.heads + t.head(lane)] = inverse[lane] == 0
                                                        ? -std::numeric_limits<float>::infinity()
                                                        : state.maximum[lane] + std::log(state.sum[lane]);
  }
}

// Falls back to attention() for few lanes, which would leave tiles mostly empty. It also does so unless the
// scale is positive, since softmax_pairs() takes the maximum before scaling.
template <TileUnit unit>
void attention_on_tiles(const Attention<BFloat16>& a, int64_t sequence, int64_t kv_head, int64_t first_query,
                        float* scratch) {
  const int64_t queries = a.q_offsets[sequence + 1] - a.q_offsets[sequence];
  const int64_t pairs = std::min(kQueryTile, queries - first_query) * (a.heads / a.kv_heads);
  if (pairs < kVector || !(a.scale > 0)) return attention(a, sequence, kv_head, first_query, scratch);
  for (int64_t begin = 0; begin < pairs; begin += kLaneTiles * kLanes)
    attention_lane_tiles<unit>(a, sequence, kv_head, first_query, begin, pairs, scratch);
}

// S^T -> P^T (after dropout) in rows, and dP^T -> dS^T (without the scale) in rows and in pairs of keys;
// see generic.cc for the equations. Keys from count to tile_padded(count) become zero. slope: of
// cap_scores(), or null.
HWY_INLINE void softmax_grad_pairs(const Attention<BFloat16>& a, const LaneKeys<BFloat16>& keys_of_lanes,
                                   int64_t columns, int64_t k0, int64_t count, const float* lse,
                                   const float* delta, const float* slope, const float* s_t, float* dp_t,
                                   BFloat16* p_rows, BFloat16* ds_rows, uint32_t* ds_pairs) {
  const DF d;
  const DU du;
  const VF scale = hn::Set(d, a.scale);
  const uint32_t threshold = dropout_threshold(a.dropout.p);
  const float keep_scale = 1 / (1 - a.dropout.p);
  for (int64_t n = 0; n < columns; n += kVector) {
    const VF lse_n = hn::LoadU(d, lse + n), delta_n = hn::LoadU(d, delta + n);
    const VU key_a = hn::LoadU(du, keys_of_lanes.a + n), key_b = hn::LoadU(du, keys_of_lanes.b + n);
    // Writes row j of P and dS; returns the bits of dS.
    const auto row = [&](int64_t j) HWY_ATTR {
      VF p = hn::Zero(d), ds = hn::Zero(d), dropped = hn::Zero(d);
      if (j < count) {
        p = exponential(d, hn::MulSub(scale, hn::LoadU(d, s_t + j * kLanes + n), lse_n));
        dropped = p;
        VF dp = hn::LoadU(d, dp_t + j * kLanes + n);
        if (a.dropout.on()) {
          const VU bits = dropout_bits_of(du, key_a, key_b, hn::Set(du, static_cast<uint32_t>(k0 + j)));
          dropped = drop(d, p, bits, threshold, keep_scale);
          dp = drop(d, dp, bits, threshold, keep_scale);
        }
        ds = hn::Mul(p, hn::Sub(dp, delta_n));
        if (a.term.on() || a.pair.on()) hn::StoreU(ds, d, dp_t + j * kLanes + n);
        if (slope) ds = hn::Mul(ds, hn::LoadU(d, slope + j * kLanes + n));
      }
      const VU rounded = rounded_bits(ds);
      store_rounded(rounded_bits(dropped), p_rows + j * kLanes + n);
      store_rounded(rounded, ds_rows + j * kLanes + n);
      return rounded;
    };
    for (int64_t j = 0; j < tile_padded(count); j += 2) {
      const VU even = row(j), odd = row(j + 1);
      hn::StoreU(pairs_of_rounded(even, odd), du, ds_pairs + j / 2 * kLanes + n);
    }
  }
}

// Scratch: K, K^T, V, dK, dV of the whole sequence and head, then the tiles.
template <TileUnit unit>
void attention_grad_on_tiles(const AttentionGrad<BFloat16>& g, int64_t sequence, int64_t kv_head,
                             float* scratch) {
  const Attention<BFloat16>& a = g.forward;
  if (!(a.scale > 0)) return attention_grad(g, sequence, kv_head, scratch);
  const DF d;
  const int64_t keys = a.key_lengths[sequence], rows = (keys + kKeyTile - 1) / kKeyTile * kKeyTile;
  const int64_t d_qk = tile_padded(a.d_qk), d_vo = tile_padded(a.d_vo);
  Pieces pieces(scratch);
  BFloat16* k = pieces.bf16(rows * d_qk);    // [keys, d_qk]
  BFloat16* k_t = pieces.bf16(rows * d_qk);  // [tiles of keys, d_qk, keys of a tile]
  BFloat16* v = pieces.bf16(rows * d_vo);    // [keys, d_vo]
  float* dk = pieces.floats(rows * d_qk);
  float* dv = pieces.floats(rows * d_vo);
  BFloat16* q_rows = pieces.bf16(kLanes * d_qk);       // [lanes, d_qk]
  BFloat16* dout_rows = pieces.bf16(kLanes * d_vo);    // [lanes, d_vo]
  uint32_t* q_t = pieces.pairs(d_qk / 2 * kLanes);     // pairs of elements
  uint32_t* dout_t = pieces.pairs(d_vo / 2 * kLanes);  // the same
  uint32_t* q = pieces.pairs(kLanes / 2 * d_qk);       // pairs of lanes
  uint32_t* dout = pieces.pairs(kLanes / 2 * d_vo);    // the same
  float* dq_t = pieces.floats(d_qk * kLanes);          // [d_qk, lanes]
  float* s_t = pieces.floats(kKeyTile * kLanes);       // [keys of a tile, lanes]
  float* dp_t = pieces.floats(kKeyTile * kLanes);      // the same
  BFloat16* p_rows = pieces.bf16(kKeyTile * kLanes);   // the same
  BFloat16* ds_rows = pieces.bf16(kKeyTile * kLanes);  // the same
  uint32_t* ds_pairs = pieces.pairs(kKeyTile / 2 * kLanes);
  float* slope = pieces.floats(kKeyTile * kLanes);  // slope of capped scores
  copy_keys(a, sequence, a.k + kv_head * a.d_qk, a.k_stride, a.d_qk, 0, keys, k);
  copy_keys(a, sequence, a.v + kv_head * a.d_vo, a.v_stride, a.d_vo, 0, keys, v);
  std::memset(k + tile_padded(keys) * d_qk, 0, (rows - tile_padded(keys)) * d_qk * sizeof(BFloat16));
  for (int64_t k0 = 0; k0 < rows; k0 += kKeyTile)
    transpose_rows(kKeyTile, d_qk, k + k0 * d_qk, k_t + k0 * d_qk);
  std::fill(dk, dk + rows * (d_qk + d_vo), 0.0f);

  const TileScope<unit> scope;
  const int64_t queries = a.q_offsets[sequence + 1] - a.q_offsets[sequence];
  const int64_t pairs = queries * (a.heads / a.kv_heads);
  const Mask mask = a.mask_of(sequence);
  for (int64_t begin = 0; begin < pairs; begin += kLanes) {
    const LaneTile<BFloat16> t{a, sequence, kv_head, 0, begin, std::min(kLanes, pairs - begin)};
    const int64_t columns = tile_padded(t.count), q0 = t.first_position(), q1 = t.end_position();
    const LaneKeys<BFloat16> dropout_keys(t);
    copy_lanes(t, a.q, a.q_stride, a.d_qk, q_rows);
    copy_lanes(t, g.dout, g.dout_stride, a.d_vo, dout_rows);
    pair_elements(columns, d_qk, q_rows, q_t);
    pair_elements(columns, d_vo, dout_rows, dout_t);
    pair_rows(columns, d_qk, q_rows, q);
    pair_rows(columns, d_vo, dout_rows, dout);
    std::fill(dq_t, dq_t + d_qk * kLanes, 0.0f);
    // delta = sum_j dP P = dO . O; a lane without keys, or unused, gets P = exp(-inf) = 0.
    alignas(64) float lse[kLanes], delta[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lse[lane] = std::numeric_limits<float>::infinity();
      delta[lane] = 0;
      if (lane >= t.count) continue;
      const float stored = a.lse[t.row(lane) * a.heads + t.head(lane)];
      if (!std::isinf(stored)) lse[lane] = stored;
      const BFloat16* out = a.out + t.row(lane) * a.out_stride + t.head(lane) * a.d_vo;
      VF dot = hn::Zero(d);
      for_vectors(a.d_vo, [&](int64_t c, int64_t n) HWY_ATTR {
        dot = hn::MulAdd(load_part(d, dout_rows + lane * d_vo + c, n), load_part(d, out + c, n), dot);
      });
      delta[lane] = sum_of(dot);
    }

    const int64_t end = mask.end_key(q1, keys);
    for (int64_t k0 = mask.first_key(q0) / kKeyTile * kKeyTile; k0 < end; k0 += kKeyTile) {
      const int64_t k1 = std::min(end, k0 + kKeyTile), count = k1 - k0, tile_keys = tile_padded(count);
      const TileCover cover = mask.cover(q0, q1, k0, k1);
      if (cover == TileCover::empty) continue;
      scope.product(tile_keys, columns, d_qk, k + k0 * d_qk, d_qk, q_t, columns, s_t, kLanes, false);
      if (a.cap > 0) cap_scores(columns, count, a.scale / a.cap, a.cap / a.scale, s_t, slope);
      if (a.term.on()) add_term(t, k0, k1, 1 / a.scale, s_t);
      if (a.pair.on()) add_pair_term(t, k0, k1, 1 / a.scale, s_t);
      if (cover == TileCover::mixed) mask_scores(t, k0, k1, 1 / a.scale, s_t);
      scope.product(tile_keys, columns, d_vo, v + k0 * d_vo, d_vo, dout_t, columns, dp_t, kLanes, false);
      softmax_grad_pairs(a, dropout_keys, columns, k0, count, lse, delta, a.cap > 0 ? slope : nullptr, s_t,
                         dp_t, p_rows, ds_rows, ds_pairs);
      if (g.dterm) add_term_grad(t, k0, k1, dp_t, g.dterm + sequence * a.heads * a.term.row());
      if (g.dpair.on()) add_pair_grad(t, g.dpair, k0, k1, dp_t);
      // dV += P^T dO;  dK += dS^T Q;  dQ^T += K^T dS^T
      scope.product(tile_keys, d_vo, columns, p_rows, kLanes, dout, d_vo, dv + k0 * d_vo, d_vo, true);
      scope.product(tile_keys, d_qk, columns, ds_rows, kLanes, q, d_qk, dk + k0 * d_qk, d_qk, true);
      scope.product(d_qk, columns, tile_keys, k_t + k0 * d_qk, kKeyTile, ds_pairs, kLanes, dq_t, kLanes,
                    true);
    }
    const DU du;
    for (int64_t n = 0; n < t.count; n += kVector)
      for (int64_t c = 0; c < a.d_qk; c += kVector) {
        VU x[kVector];
        for (int64_t r = 0; r < kVector; ++r)
          x[r] = hn::BitCast(du, hn::Mul(hn::Set(d, a.scale), hn::LoadU(d, dq_t + (c + r) * kLanes + n)));
        transpose(x);
        for (int64_t lane = n; lane < std::min(t.count, n + kVector); ++lane)
          store_part(d, hn::BitCast(d, x[lane - n]),
                     g.dq + t.row(lane) * g.dq_stride + t.head(lane) * a.d_qk + c,
                     std::min(kVector, a.d_qk - c));
      }
  }
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t row = row_of_key(a, sequence, j);
    map(a.d_qk, dk + j * d_qk, g.dk + row * g.dk_stride + kv_head * a.d_qk,
        [&](VF x) HWY_ATTR { return hn::Mul(x, hn::Set(d, a.scale)); });
    from_f32(a.d_vo, dv + j * d_vo, g.dv + row * g.dv_stride + kv_head * a.d_vo);
  }
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

// Tiled attention, forward and backward, linear memory in length.
//
// Tiles are kept transposed: a score tile S^T has one key per row and one query per lane. The softmax over
// keys is then a vertical operation without shuffles. Keys and values are read in place (broadcast, element
// by element), and query heads that share a key/value head are simply more lanes. A "lane" below is one
// pair (query, head of the group): lane = (query - first) * group + head.
#if defined(QKV_KERNELS_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_ATTENTION_INL_H
#undef QKV_KERNELS_CPU_ATTENTION_INL_H
#else
#define QKV_KERNELS_CPU_ATTENTION_INL_H
#endif

#include "qkv/kernels/cpu/elementwise-inl.h"
#include "qkv/kernels/cpu/lane_tile-inl.h"
#include "qkv/kernels/cpu/pair_term-inl.h"
#include "qkv/kernels/cpu/rows-inl.h"
#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// C[MR, NV vectors] (+)= A B with A[m, k] = a[m sm + k sk], B[k] and C[m] rows of whole vectors.
template <int MR, int NV>
HWY_INLINE void micro_product(const float* HWY_RESTRICT a, int64_t sm, int64_t sk,
                              const float* HWY_RESTRICT b, int64_t ldb, float* HWY_RESTRICT c, int64_t ldc,
                              int64_t depth, bool accumulate) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  VF acc[MR][NV];
  for (int m = 0; m < MR; ++m)
    for (int j = 0; j < NV; ++j) acc[m][j] = accumulate ? hn::LoadU(d, c + m * ldc + j * lanes) : hn::Zero(d);
  for (int64_t k = 0; k < depth; ++k) {
    VF row[NV];
    for (int j = 0; j < NV; ++j) row[j] = hn::LoadU(d, b + k * ldb + j * lanes);
    for (int m = 0; m < MR; ++m) {
      const VF am = hn::Set(d, a[m * sm + k * sk]);
      for (int j = 0; j < NV; ++j) acc[m][j] = hn::MulAdd(am, row[j], acc[m][j]);
    }
  }
  for (int m = 0; m < MR; ++m)
    for (int j = 0; j < NV; ++j) hn::StoreU(acc[m][j], d, c + m * ldc + j * lanes);
}

template <int NV>
HWY_INLINE void product_rows(int64_t rows, const float* a, int64_t sm, int64_t sk, const float* b,
                             int64_t ldb, float* c, int64_t ldc, int64_t depth, bool accumulate) {
  int64_t m = 0;
  for (; m + 6 <= rows; m += 6)
    micro_product<6, NV>(a + m * sm, sm, sk, b, ldb, c + m * ldc, ldc, depth, accumulate);
  for (; m + 2 <= rows; m += 2)
    micro_product<2, NV>(a + m * sm, sm, sk, b, ldb, c + m * ldc, ldc, depth, accumulate);
  if (m < rows) micro_product<1, NV>(a + m * sm, sm, sk, b, ldb, c + m * ldc, ldc, depth, accumulate);
}

// C[rows, columns] (+)= A B; columns a multiple of the vector length.
HWY_NOINLINE void tile_product(int64_t rows, int64_t columns, int64_t depth, const float* a, int64_t sm,
                               int64_t sk, const float* b, int64_t ldb, float* c, int64_t ldc,
                               bool accumulate) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  constexpr int kWide = HWY_LANES(float) >= 16 ? 4 : 2;  // accumulators: 24 of 32, or 12 of 16 registers
  int64_t n = 0;
  for (; n + kWide * lanes <= columns; n += kWide * lanes)
    product_rows<kWide>(rows, a, sm, sk, b + n, ldb, c + n, ldc, depth, accumulate);
  if constexpr (kWide == 4)
    for (; n + 2 * lanes <= columns; n += 2 * lanes)
      product_rows<2>(rows, a, sm, sk, b + n, ldb, c + n, ldc, depth, accumulate);
  for (; n < columns; n += lanes) product_rows<1>(rows, a, sm, sk, b + n, ldb, c + n, ldc, depth, accumulate);
}

// Keys [k0, k1) of x (k or v) as f32 rows of `width`.
template <typename T>
HWY_INLINE void gather_keys(const Attention<T>& a, int64_t s, const T* x, int64_t stride, int64_t width,
                            int64_t k0, int64_t k1, float* out) {
  for (int64_t j = k0; j < k1; ++j) to_f32(width, x + row_of_key(a, s, j) * stride, out + (j - k0) * width);
}

// x^T: out[c, lane] = factor x[row(lane), head(lane), c], zero in unused lanes.
template <typename T>
HWY_INLINE void pack_transposed(const LaneTile<T>& t, const T* x, int64_t stride, int64_t width, float factor,
                                float* out) {
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const T* from = x + t.row(lane) * stride + t.head(lane) * width;
    for (int64_t c = 0; c < width; ++c) out[c * kLanes + lane] = factor * static_cast<float>(from[c]);
  }
  if (t.count < kLanes)
    for (int64_t c = 0; c < width; ++c)
      std::memset(out + c * kLanes + t.count, 0, (kLanes - t.count) * sizeof(float));
}

// Per-lane dropout keys.
template <typename T>
struct LaneKeys {
  alignas(64) uint32_t a[kLanes], b[kLanes];
  explicit LaneKeys(const LaneTile<T>& t) {
    std::memset(a, 0, sizeof a);
    std::memset(b, 0, sizeof b);
    if (!t.a.dropout.on()) return;
    for (int64_t lane = 0; lane < t.count; ++lane) {
      const DropoutKey key =
          t.a.dropout.key.row((t.a.dropout.first_row + t.row(lane)) * t.a.heads + t.head(lane));
      a[lane] = key.a;
      b[lane] = key.b;
    }
  }
};

// mask_scores() for masks that depend only on distances. A tile has few distances, and neighbouring lanes
// have neighbouring ones.
template <typename T>
HWY_INLINE void mask_distances(const LaneTile<T>& t, const Mask& mask, int64_t k0, int64_t k1,
                               float* scores) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t q0 = t.first_position(), nearest = q0 - (k1 - 1), key = std::max<int64_t>(0, -nearest);
  float hidden[kLanes + kKeyTile] = {};  // mask at distance nearest + i: 0 or -inf
  for (int64_t i = 0; i < t.end_position() - k0 - nearest; ++i)
    if (!mask.allows(key + nearest + i, key)) hidden[i] = -std::numeric_limits<float>::infinity();
  const hn::RebindToSigned<DF> di;
  int32_t query[kLanes] = {};
  for (int64_t lane = 0; lane < t.count; ++lane)
    query[lane] = static_cast<int32_t>(t.query(lane) - t.query(0));
  for (int64_t j = k0; j < k1; ++j) {
    float* row = scores + (j - k0) * kLanes;
    const float* of_key = hidden + (q0 - j - nearest);
    for (int64_t n = 0; n < t.count; n += lanes) {
      const VF of_lanes =
          t.group() == 1 ? hn::LoadU(d, of_key + n) : hn::GatherIndex(d, of_key, hn::LoadU(di, query + n));
      hn::StoreU(hn::Add(hn::LoadU(d, row + n), of_lanes), d, row + n);
    }
  }
}

// Sets masked scores to -inf. Scores of keys that count several times are raised by Mask::raise() times
// `factor`.
template <typename T>
HWY_INLINE void mask_scores(const LaneTile<T>& t, int64_t k0, int64_t k1, float factor, float* scores) {
  const Mask mask = t.a.mask_of(t.sequence);
  if (mask.by_distance()) return mask_distances(t, mask, k0, k1, scores);
  int64_t position[kLanes];
  for (int64_t lane = 0; lane < t.count; ++lane) position[lane] = t.position(lane);
  for (int64_t j = k0; j < k1; ++j)
    for (int64_t lane = 0; lane < t.count; ++lane)
      if (!mask.allows(position[lane], j))
        scores[(j - k0) * kLanes + lane] = -std::numeric_limits<float>::infinity();
  if (!mask.counts()) return;
  for (int64_t j = k0; j < k1; ++j)
    for (int64_t lane = 0; lane < t.count; ++lane)
      scores[(j - k0) * kLanes + lane] += factor * mask.raise(position[lane], j);
}

// Adds the score term, times `factor`, to the scores. With one head per group, neighbouring lanes have
// neighbouring distances.
template <typename T>
HWY_INLINE void add_term(const LaneTile<T>& t, int64_t k0, int64_t k1, float factor, float* scores) {
  const DF d;
  const ScoreTerm& term = t.a.term;
  const VF f = hn::Set(d, factor);
  for (int64_t j = k0; j < k1; ++j) {
    float* row = scores + (j - k0) * kLanes;
    if (t.group() == 1) {
      const float* bias = term.bias + term.at(t.head(0), t.position(0), j);
      for_vectors(t.count, [&](int64_t c, int64_t n) HWY_ATTR {
        store_part(d, hn::MulAdd(f, load_part(d, bias + c, n), load_part(d, row + c, n)), row + c, n);
      });
      continue;
    }
    for (int64_t lane = 0; lane < t.count; ++lane)
      row[lane] += factor * term.bias[term.at(t.head(lane), t.position(lane), j)];
  }
}

// s -> out tanh(in s). Unless it is null, slope becomes 1 - tanh^2.
HWY_NOINLINE void cap_scores(int64_t columns, int64_t count, float in, float out, float* scores,
                             float* slope) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < count; ++j)
    for (int64_t n = 0; n < columns; n += lanes) {
      float* s = scores + j * kLanes + n;
      const VF t = hyperbolic_tangent(d, hn::Mul(hn::LoadU(d, s), hn::Set(d, in)));
      hn::StoreU(hn::Mul(t, hn::Set(d, out)), d, s);
      if (slope) hn::StoreU(hn::NegMulAdd(t, t, hn::Set(d, 1.0f)), d, slope + j * kLanes + n);
    }
}

// Adds dS to the term's gradient.
template <typename T>
HWY_INLINE void add_term_grad(const LaneTile<T>& t, int64_t k0, int64_t k1, const float* ds, float* dterm) {
  const DF d;
  const ScoreTerm& term = t.a.term;
  for (int64_t j = k0; j < k1; ++j) {
    const float* row = ds + (j - k0) * kLanes;
    if (t.group() == 1) {
      float* to = dterm + term.at(t.head(0), t.position(0), j);
      for_vectors(t.count, [&](int64_t c, int64_t n) HWY_ATTR {
        store_part(d, hn::Add(load_part(d, to + c, n), load_part(d, row + c, n)), to + c, n);
      });
      continue;
    }
    for (int64_t lane = 0; lane < t.count; ++lane)
      dterm[term.at(t.head(lane), t.position(lane), j)] += row[lane];
  }
}

// scores[keys, lanes] -> exp(scores - new maximum), after dropout. Updates the running maximum and sum, and
// sets correction[lane] = exp(old maximum - new maximum).
template <typename T>
HWY_INLINE void online_softmax(const Attention<T>& a, const LaneKeys<T>& keys_of_lanes, int64_t columns,
                               int64_t k0, int64_t count, float* scores, float* maximum, float* sum,
                               float* correction) {
  const DF d;
  const DU du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint32_t threshold = dropout_threshold(a.dropout.p);
  const float keep_scale = 1 / (1 - a.dropout.p);
  for (int64_t n = 0; n < columns; n += lanes) {
    const VF old = hn::LoadU(d, maximum + n);
    VF top = old;
    for (int64_t j = 0; j < count; ++j) top = hn::Max(top, hn::LoadU(d, scores + j * kLanes + n));
    const VF fix = exponential(d, hn::Sub(old, top));
    VF total = hn::Mul(hn::LoadU(d, sum + n), fix);
    const VU key_a = hn::LoadU(du, keys_of_lanes.a + n), key_b = hn::LoadU(du, keys_of_lanes.b + n);
    for (int64_t j = 0; j < count; ++j) {
      VF p = exponential(d, hn::Sub(hn::LoadU(d, scores + j * kLanes + n), top));
      total = hn::Add(total, p);
      if (a.dropout.on())
        p = drop(d, p, dropout_bits_of(du, key_a, key_b, hn::Set(du, static_cast<uint32_t>(k0 + j))),
                 threshold, keep_scale);
      hn::StoreU(p, d, scores + j * kLanes + n);
    }
    hn::StoreU(top, d, maximum + n);
    hn::StoreU(total, d, sum + n);
    hn::StoreU(fix, d, correction + n);
  }
}

HWY_INLINE void scale_lanes(int64_t rows, int64_t columns, const float* factor, float* x) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t n = 0; n < columns; n += lanes) {
    const VF f = hn::LoadU(d, factor + n);
    for (int64_t r = 0; r < rows; ++r)
      hn::StoreU(hn::Mul(f, hn::LoadU(d, x + r * kLanes + n)), d, x + r * kLanes + n);
  }
}

// Stays finite, so that a row without keys gives exp(-inf - kNoMaximum) = 0 and not NaN.
inline constexpr float kNoMaximum = -1e30f;

// The softmax's state before any key: a sink is a key without a value.
template <typename T>
HWY_INLINE void begin_softmax(const LaneTile<T>& t, float* maximum, float* sum) {
  std::fill(maximum, maximum + kLanes, kNoMaximum);
  std::fill(sum, sum + kLanes, 0.0f);
  if (t.a.sinks == nullptr) return;
  for (int64_t lane = 0; lane < t.count; ++lane) {
    maximum[lane] = t.a.sinks[t.head(lane)];
    sum[lane] = 1;
  }
}

// Scratch: Q^T [d_qk, lanes], K [keys, d_qk], V [keys, d_vo], S^T [keys, lanes], O^T [d_vo, lanes].
template <typename T>
HWY_NOINLINE void attention_lanes(const LaneTile<T>& t, float* scratch) {
  const Attention<T>& a = t.a;
  float* q_t = scratch;
  float* k_tile = q_t + a.d_qk * kLanes;
  float* v_tile = k_tile + kKeyTile * a.d_qk;
  float* s_t = v_tile + kKeyTile * a.d_vo;
  float* o_t = s_t + kKeyTile * kLanes;
  alignas(64) float maximum[kLanes], sum[kLanes], correction[kLanes];
  begin_softmax(t, maximum, sum);
  std::fill(o_t, o_t + a.d_vo * kLanes, 0.0f);
  const LaneKeys<T> dropout_keys(t);
  const int64_t columns = padded(t.count);
  const int64_t q0 = t.first_position(), q1 = t.end_position();
  const Mask mask = a.mask_of(t.sequence);
  const int64_t end = mask.end_key(q1, a.key_lengths[t.sequence]);
  pack_transposed(t, a.q, a.q_stride, a.d_qk, a.scale, q_t);

  // Tiles begin at multiples of their length: which keys are summed together does not depend on the queries.
  for (int64_t k0 = mask.first_key(q0) / kKeyTile * kKeyTile; k0 < end; k0 += kKeyTile) {
    const int64_t k1 = std::min(end, k0 + kKeyTile), count = k1 - k0;
    const TileCover cover = mask.cover(q0, q1, k0, k1);
    if (cover == TileCover::empty) continue;
    gather_keys(a, t.sequence, a.k + t.kv_head * a.d_qk, a.k_stride, a.d_qk, k0, k1, k_tile);
    gather_keys(a, t.sequence, a.v + t.kv_head * a.d_vo, a.v_stride, a.d_vo, k0, k1, v_tile);
    tile_product(count, columns, a.d_qk, k_tile, a.d_qk, 1, q_t, kLanes, s_t, kLanes, false);  // S^T = K Q^T
    if (a.cap > 0) cap_scores(columns, count, 1 / a.cap, a.cap, s_t, nullptr);
    if (a.term.on()) add_term(t, k0, k1, 1, s_t);
    if (a.pair.on()) add_pair_term(t, k0, k1, 1, s_t);
    if (cover == TileCover::mixed) mask_scores(t, k0, k1, 1, s_t);
    online_softmax(a, dropout_keys, columns, k0, count, s_t, maximum, sum, correction);
    scale_lanes(a.d_vo, columns, correction, o_t);
    tile_product(a.d_vo, columns, count, v_tile, 1, a.d_vo, s_t, kLanes, o_t, kLanes,
                 true);  // O^T += V^T P^T
  }

  for (int64_t lane = 0; lane < t.count; ++lane) {
    const bool sees = sum[lane] > 0;
    const float inverse = sees ? 1 / sum[lane] : 0;
    const int64_t row = t.row(lane), head = t.head(lane);
    a.lse[row * a.heads + head] =
        sees ? maximum[lane] + std::log(sum[lane]) : -std::numeric_limits<float>::infinity();
    T* out = a.out + row * a.out_stride + head * a.d_vo;
    for (int64_t c = 0; c < a.d_vo; ++c) out[c] = T(o_t[c * kLanes + lane] * inverse);
  }
}

template <typename T>
HWY_INLINE void prefetch(const T* x, int64_t n) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < n; i += kLine) __builtin_prefetch(x + i);
}

// scores[m kKeyTile + j] = q[m q_stride] . x[at[j]] for `count` keys, a vector of keys at a time. Each is
// added column by column, as tiles of many queries do it. Writes whole vectors of scores.
template <int kQueries, typename T>
HWY_INLINE void dots(const float* q, int64_t q_stride, const T* x, const int64_t* at, int64_t count,
                     int64_t width, float* scores) {
  const DF d;
  constexpr int64_t kVector = HWY_LANES(float);
  // Four columns at a time cost least; halves are converted by whole vectors.
  constexpr int64_t kColumns = std::is_same_v<T, float> ? 4 : kVector;
  for (int64_t j = 0; j < count; j += kVector) {
    const T* from[kVector];
    for (int64_t i = 0; i < kVector; ++i) from[i] = x + at[std::min(j + i, count - 1)];
    VF sum[kQueries];
    for (VF& s : sum) s = hn::Zero(d);
    for (int64_t c = 0; c < width; c += kColumns) {
      const int64_t n = std::min(kColumns, width - c);
      VF columns[kColumns];
      load_columns(from, c, n, columns);
      for (int64_t i = 0; i < n; ++i)
        for (int m = 0; m < kQueries; ++m)
          sum[m] = hn::MulAdd(columns[i], hn::Set(d, q[m * q_stride + c + i]), sum[m]);
    }
    for (int m = 0; m < kQueries; ++m) hn::StoreU(sum[m], d, scores + m * kKeyTile + j);
  }
}

// o[m o_stride] += sum_j w[m kKeyTile + j] x[at[j]] for so many vectors, the last of `last` elements, and
// sum[m] += sum_j w[m kKeyTile + j] unless it is null. These are chains of additions, which take the time of
// one.
template <int kQueries, int kVectors, typename T>
HWY_INLINE void add_vectors(const float* w, const T* x, const int64_t* at, int64_t count, int64_t last,
                            float* o, int64_t o_stride, float* sum) {
  const DF d;
  constexpr int64_t kLanes = HWY_LANES(float);
  VF out[kQueries][kVectors];
  float total[kQueries] = {};
  for (int m = 0; m < kQueries; ++m) {
    for (int64_t v = 0; v < kVectors; ++v) out[m][v] = load(d, o + m * o_stride + v * kLanes);
    if (sum) total[m] = sum[m];
  }
  for (int64_t j = 0; j < count; ++j) {
    const T* const row = x + at[j];
    VF value[kVectors];
    for (int64_t v = 0; v < kVectors; ++v)
      value[v] = v + 1 < kVectors ? load(d, row + v * kLanes) : load_part(d, row + v * kLanes, last);
    for (int m = 0; m < kQueries; ++m) {
      const float weight = w[m * kKeyTile + j];
      for (int64_t v = 0; v < kVectors; ++v) out[m][v] = hn::MulAdd(hn::Set(d, weight), value[v], out[m][v]);
      total[m] += weight;
    }
  }
  for (int m = 0; m < kQueries; ++m) {
    for (int64_t v = 0; v < kVectors; ++v) store(d, out[m][v], o + m * o_stride + v * kLanes);
    if (sum) sum[m] = total[m];
  }
}

// The same for rows of `width` elements.
template <int kQueries, typename T>
HWY_INLINE void add_weighted(const float* w, const T* x, const int64_t* at, int64_t count, int64_t width,
                             float* o, int64_t o_stride, float* sum) {
  constexpr int64_t kLanes = HWY_LANES(float);
  for (int64_t c = 0; c < width; sum = nullptr) {
    const int64_t left = width - c;
    const auto add = [&]<int kVectors>() HWY_ATTR {
      add_vectors<kQueries, kVectors>(w, x + c, at, count, std::min(kLanes, left - (kVectors - 1) * kLanes),
                                      o + c, o_stride, sum);
      c += kVectors * kLanes;
    };
    if (left > 3 * kLanes)
      add.template operator()<4>();
    else if (left > kLanes)
      add.template operator()<2>();
    else
      add.template operator()<1>();
  }
}

// One or two lanes of one token, with vectors along the keys and then along the head: a few queries would
// leave a tile's lanes empty. Their sums have the order of attention_lanes(), so that a token has the same
// bits alone and in a prompt. Memory is the bottleneck, and keys are far apart. So values are prefetched
// while scores are computed, and the next keys while values are added. Scratch: for each lane q [d_qk],
// scores [keys], o [d_vo].
template <int kQueries, typename T>
HWY_NOINLINE void attention_of_token(const LaneTile<T>& t, float* scratch) {
  const DF d;
  const Attention<T>& a = t.a;
  const int64_t row = t.row(0), q_stride = padded(a.d_qk), o_stride = padded(a.d_vo);
  const T *k = a.k + t.kv_head * a.d_qk, *v = a.v + t.kv_head * a.d_vo;
  float* q = scratch;
  float* p = q + kQueries * q_stride;
  float* o = p + kQueries * kKeyTile;
  const LaneKeys<T> dropout_keys(t);
  const uint32_t threshold = dropout_threshold(a.dropout.p);
  const float keep_scale = 1 / (1 - a.dropout.p);
  float maximum[kQueries], sum[kQueries];
  for (int m = 0; m < kQueries; ++m) {
    map(a.d_qk, a.q + row * a.q_stride + t.head(m) * a.d_qk, q + m * q_stride,
        [&](VF x) HWY_ATTR { return hn::Mul(x, hn::Set(d, a.scale)); });
    maximum[m] = a.sinks ? a.sinks[t.head(m)] : kNoMaximum;
    sum[m] = a.sinks ? 1 : 0;
  }
  std::fill(o, o + kQueries * o_stride, 0.0f);
  const Mask mask = a.mask_of(t.sequence);
  const int64_t position = t.position(0), end = mask.end_key(position + 1, a.key_lengths[t.sequence]);
  int64_t k_rows[2][kKeyTile], v_rows[kKeyTile];  // k_rows: in turn this tile's and the next one's
  const int64_t first = mask.first_key(position) / kKeyTile * kKeyTile;
  // The processor itself fetches rows that are so short ahead.
  const bool fetches = std::min(a.d_qk, a.d_vo) * static_cast<int64_t>(sizeof(T)) > 64;
  if (first < end)
    offsets_of_keys(a, t.sequence, first, std::min(end, first + kKeyTile), a.k_stride, k_rows[0]);
  int turn = 0;
  for (int64_t k0 = first; k0 < end; k0 += kKeyTile, turn = 1 - turn) {
    const int64_t k1 = std::min(end, k0 + kKeyTile), count = k1 - k0;
    const int64_t next_count = std::min(end, k1 + kKeyTile) - k1;
    const int64_t *const k_at = k_rows[turn], *next_k_at = k_rows[1 - turn];
    if (next_count > 0) offsets_of_keys(a, t.sequence, k1, k1 + next_count, a.k_stride, k_rows[1 - turn]);
    if (a.v_stride != a.k_stride) offsets_of_keys(a, t.sequence, k0, k1, a.v_stride, v_rows);
    const int64_t* const v_at = a.v_stride != a.k_stride ? v_rows : k_at;
    const TileCover cover = mask.cover(position, position + 1, k0, k1);
    if (cover == TileCover::empty) continue;

    for (int64_t j = 0; j < count && fetches; ++j) prefetch(v + v_at[j], a.d_vo);
    dots<kQueries>(q, q_stride, k, k_at, count, a.d_qk, p);
    for (int m = 0; m < kQueries; ++m) {
      float* const s = p + m * kKeyTile;
      if (a.cap > 0) {
        const VF in = hn::Set(d, 1 / a.cap), out = hn::Set(d, a.cap);
        map(count, s, s, [&](VF x) HWY_ATTR { return hn::Mul(hyperbolic_tangent(d, hn::Mul(x, in)), out); });
      }
      float top = maximum[m];
      const bool plain = cover == TileCover::full && a.cap == 0 && !a.term.on() && !mask.counts();
      if (plain) {  // behind the last score stand copies of it
        VF most = hn::Set(d, top);
        for (int64_t j = 0; j < count; j += HWY_LANES(float)) most = hn::Max(most, hn::LoadU(d, s + j));
        top = hn::GetLane(hn::MaxOfLanes(d, most));
      }
      for (int64_t j = 0; j < count && !plain; ++j) {
        if (a.term.on()) s[j] += a.term.bias[a.term.at(t.head(m), position, k0 + j)];
        if (!mask.allows(position, k0 + j)) s[j] = -std::numeric_limits<float>::infinity();
        if (mask.counts()) s[j] += mask.raise(position, k0 + j);
        top = std::max(top, s[j]);
      }
      const float correction = hn::GetLane(exponential(d, hn::Set(d, maximum[m] - top)));
      maximum[m] = top;
      map(count, s, s, [&](VF x) HWY_ATTR { return exponential(d, hn::Sub(x, hn::Set(d, top))); });
      sum[m] *= correction;
      if (correction != 1) scale(a.d_vo, correction, o + m * o_stride);
    }
    for (int m = 0; m < kQueries && a.dropout.on(); ++m) {
      const DropoutKey key{dropout_keys.a[m], dropout_keys.b[m]};
      float* const s = p + m * kKeyTile;
      for (int64_t j = 0; j < count; ++j) sum[m] += s[j];
      for (int64_t j = 0; j < count; ++j)
        s[j] = dropout_bits(key, static_cast<uint32_t>(k0 + j)) >= threshold ? s[j] * keep_scale : 0;
    }
    for (int64_t j = 0; j < next_count && fetches; ++j) prefetch(k + next_k_at[j], a.d_qk);
    add_weighted<kQueries>(p, v, v_at, count, a.d_vo, o, o_stride, a.dropout.on() ? nullptr : sum);
  }
  for (int m = 0; m < kQueries; ++m) {
    const int64_t head = t.head(m);
    a.lse[row * a.heads + head] =
        sum[m] > 0 ? maximum[m] + std::log(sum[m]) : -std::numeric_limits<float>::infinity();
    const float inverse = sum[m] > 0 ? 1 / sum[m] : 0;
    map(a.d_vo, o + m * o_stride, a.out + row * a.out_stride + head * a.d_vo,
        [&](VF x) HWY_ATTR { return hn::Mul(x, hn::Set(d, inverse)); });
  }
}

template <typename T>
void attention(const Attention<T>& a, int64_t sequence, int64_t kv_head, int64_t first_query,
               float* scratch) {
  const int64_t queries = a.q_offsets[sequence + 1] - a.q_offsets[sequence];
  const int64_t pairs = std::min(kQueryTile, queries - first_query) * (a.heads / a.kv_heads);
  if (pairs == 2 && a.heads == 2 * a.kv_heads && !a.pair.on())
    return attention_of_token<2>(LaneTile<T>{a, sequence, kv_head, first_query, 0, 2}, scratch);
  if (pairs <= 2 && !a.pair.on()) {
    for (int64_t lane = 0; lane < pairs; ++lane)
      attention_of_token<1>(LaneTile<T>{a, sequence, kv_head, first_query, lane, 1}, scratch);
    return;
  }
  for (int64_t begin = 0; begin < pairs; begin += kLanes)
    attention_lanes(LaneTile<T>{a, sequence, kv_head, first_query, begin, std::min(kLanes, pairs - begin)},
                    scratch);
}

// x as f32 rows: out[lane, c] = factor x[row(lane), head(lane), c], rows padded with zeros to whole vectors.
template <typename T>
HWY_INLINE void pack_rows(const LaneTile<T>& t, const T* x, int64_t stride, int64_t width, float factor,
                          float* out) {
  const int64_t wide = padded(width);
  for (int64_t lane = 0; lane < t.count; ++lane) {
    const T* from = x + t.row(lane) * stride + t.head(lane) * width;
    for (int64_t c = 0; c < width; ++c) out[lane * wide + c] = factor * static_cast<float>(from[c]);
    for (int64_t c = width; c < wide; ++c) out[lane * wide + c] = 0;
  }
}

// S^T -> P^T (after dropout), dP^T -> dS^T; see generic.cc for the equations.
template <typename T>
HWY_INLINE void softmax_grad(const Attention<T>& a, const LaneKeys<T>& keys_of_lanes, int64_t columns,
                             int64_t k0, int64_t count, const float* lse, const float* delta, float* s_t,
                             float* dp_t) {
  const DF d;
  const DU du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint32_t threshold = dropout_threshold(a.dropout.p);
  const float keep_scale = 1 / (1 - a.dropout.p);
  for (int64_t n = 0; n < columns; n += lanes) {
    const VF lse_n = hn::LoadU(d, lse + n), delta_n = hn::LoadU(d, delta + n);
    const VU key_a = hn::LoadU(du, keys_of_lanes.a + n), key_b = hn::LoadU(du, keys_of_lanes.b + n);
    for (int64_t j = 0; j < count; ++j) {
      float* s = s_t + j * kLanes + n;
      float* dp = dp_t + j * kLanes + n;
      const VF p = exponential(d, hn::Sub(hn::LoadU(d, s), lse_n));
      VF dropped = p, dpn = hn::LoadU(d, dp);
      if (a.dropout.on()) {
        const VU bits = dropout_bits_of(du, key_a, key_b, hn::Set(du, static_cast<uint32_t>(k0 + j)));
        dropped = drop(d, p, bits, threshold, keep_scale);
        dpn = drop(d, dpn, bits, threshold, keep_scale);
      }
      hn::StoreU(dropped, d, s);
      hn::StoreU(hn::Mul(p, hn::Sub(dpn, delta_n)), d, dp);
    }
  }
}

// Scratch: K, V, dK, dV of the whole sequence and head, then the tiles.
template <typename T>
void attention_grad(const AttentionGrad<T>& g, int64_t sequence, int64_t kv_head, float* scratch) {
  const Attention<T>& a = g.forward;
  const int64_t keys = a.key_lengths[sequence], wide_qk = padded(a.d_qk), wide_vo = padded(a.d_vo);
  float* k = scratch;                           // [keys, d_qk]
  float* v = k + keys * a.d_qk;                 // [keys, d_vo]
  float* dk = v + keys * a.d_vo;                // [keys, wide_qk]
  float* dv = dk + keys * wide_qk;              // [keys, wide_vo]
  float* q_t = dv + keys * wide_vo;             // [d_qk, lanes], scaled
  float* q_rows = q_t + a.d_qk * kLanes;        // [lanes, wide_qk], scaled
  float* dout_t = q_rows + kLanes * wide_qk;    // [d_vo, lanes]
  float* dout_rows = dout_t + a.d_vo * kLanes;  // [lanes, wide_vo]
  float* dq_t = dout_rows + kLanes * wide_vo;   // [d_qk, lanes]
  float* s_t = dq_t + a.d_qk * kLanes;          // [keys of a tile, lanes]
  float* dp_t = s_t + kKeyTile * kLanes;        // [keys of a tile, lanes]
  float* slope = dp_t + kKeyTile * kLanes;      // [keys of a tile, lanes], for capped scores
  gather_keys(a, sequence, a.k + kv_head * a.d_qk, a.k_stride, a.d_qk, 0, keys, k);
  gather_keys(a, sequence, a.v + kv_head * a.d_vo, a.v_stride, a.d_vo, 0, keys, v);
  std::fill(dk, dk + keys * (wide_qk + wide_vo), 0.0f);

  const int64_t queries = a.q_offsets[sequence + 1] - a.q_offsets[sequence];
  const int64_t pairs = queries * (a.heads / a.kv_heads);
  const Mask mask = a.mask_of(sequence);
  for (int64_t begin = 0; begin < pairs; begin += kLanes) {
    const LaneTile<T> t{a, sequence, kv_head, 0, begin, std::min(kLanes, pairs - begin)};
    const int64_t columns = padded(t.count), q0 = t.first_position(), q1 = t.end_position();
    const LaneKeys<T> dropout_keys(t);
    pack_transposed(t, a.q, a.q_stride, a.d_qk, a.scale, q_t);
    pack_rows(t, a.q, a.q_stride, a.d_qk, a.scale, q_rows);
    pack_transposed(t, g.dout, g.dout_stride, a.d_vo, 1.0f, dout_t);
    pack_rows(t, g.dout, g.dout_stride, a.d_vo, 1.0f, dout_rows);
    std::fill(dq_t, dq_t + a.d_qk * kLanes, 0.0f);
    // delta = sum_j dP P = dO . O; a lane without keys, or unused, gets P = exp(-inf) = 0.
    alignas(64) float lse[kLanes], delta[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lse[lane] = std::numeric_limits<float>::infinity();
      delta[lane] = 0;
      if (lane >= t.count) continue;
      const float stored = a.lse[t.row(lane) * a.heads + t.head(lane)];
      if (!std::isinf(stored)) lse[lane] = stored;
      const T* out = a.out + t.row(lane) * a.out_stride + t.head(lane) * a.d_vo;
      for (int64_t c = 0; c < a.d_vo; ++c)
        delta[lane] += dout_rows[lane * wide_vo + c] * static_cast<float>(out[c]);
    }

    const int64_t end = mask.end_key(q1, keys);
    for (Mask::Tile at = mask.next_tile(q0, q1, mask.first_key(q0), end, kKeyTile), next; at.k0 < end;
         at = next) {
      const int64_t k0 = at.k0, k1 = std::min(end, k0 + kKeyTile), count = k1 - k0;
      const TileCover cover = at.cover;
      next = mask.next_tile(q0, q1, k1, end, kKeyTile);
      // The processor prefetches a tile beside this one by itself.
      const int64_t far = next.k0 > k1 ? std::min(end - next.k0, kKeyTile) : 0;
      prefetch(k + next.k0 * a.d_qk, far * a.d_qk);
      tile_product(count, columns, a.d_qk, k + k0 * a.d_qk, a.d_qk, 1, q_t, kLanes, s_t, kLanes, false);
      if (a.cap > 0) cap_scores(columns, count, 1 / a.cap, a.cap, s_t, slope);
      if (a.term.on()) add_term(t, k0, k1, 1, s_t);
      if (a.pair.on()) add_pair_term(t, k0, k1, 1, s_t);
      if (cover == TileCover::mixed) mask_scores(t, k0, k1, 1, s_t);
      prefetch(v + next.k0 * a.d_vo, far * a.d_vo);
      tile_product(count, columns, a.d_vo, v + k0 * a.d_vo, a.d_vo, 1, dout_t, kLanes, dp_t, kLanes, false);
      softmax_grad(a, dropout_keys, columns, k0, count, lse, delta, s_t, dp_t);
      if (g.dterm) add_term_grad(t, k0, k1, dp_t, g.dterm + sequence * a.heads * a.term.row());
      if (g.dpair.on()) add_pair_grad(t, g.dpair, k0, k1, dp_t);
      if (a.cap > 0)
        map(count * kLanes, dp_t, slope, dp_t, [](VF x, VF y) HWY_ATTR { return hn::Mul(x, y); });
      // dV += P^T dO;  dK += dS^T Q;  dQ^T += K^T dS^T
      prefetch(dv + next.k0 * wide_vo, far * wide_vo);
      tile_product(count, wide_vo, t.count, s_t, kLanes, 1, dout_rows, wide_vo, dv + k0 * wide_vo, wide_vo,
                   true);
      prefetch(dk + next.k0 * wide_qk, far * wide_qk);
      tile_product(count, wide_qk, t.count, dp_t, kLanes, 1, q_rows, wide_qk, dk + k0 * wide_qk, wide_qk,
                   true);
      tile_product(a.d_qk, columns, count, k + k0 * a.d_qk, 1, a.d_qk, dp_t, kLanes, dq_t, kLanes, true);
    }
    for (int64_t lane = 0; lane < t.count; ++lane) {
      T* dq = g.dq + t.row(lane) * g.dq_stride + t.head(lane) * a.d_qk;
      for (int64_t c = 0; c < a.d_qk; ++c) dq[c] = T(a.scale * dq_t[c * kLanes + lane]);
    }
  }
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t row = row_of_key(a, sequence, j);
    from_f32(a.d_qk, dk + j * wide_qk, g.dk + row * g.dk_stride + kv_head * a.d_qk);
    from_f32(a.d_vo, dv + j * wide_vo, g.dv + row * g.dv_stride + kv_head * a.d_vo);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

// Adds the pair term of relative encodings to a tile of scores, and its gradient to the term's tables.
#if defined(QKV_KERNELS_CPU_PAIR_TERM_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_PAIR_TERM_INL_H
#undef QKV_KERNELS_CPU_PAIR_TERM_INL_H
#else
#define QKV_KERNELS_CPU_PAIR_TERM_INL_H
#endif

#include "qkv/kernels/cpu/lane_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// One tile's keys, and the columns of its pairs.
template <typename T>
struct PairTile {
  const LaneTile<T>& t;
  const PairTerm& term;
  int64_t k0, k1;
  int64_t rows[kKeyTile];  // rows of k that hold the keys

  PairTile(const LaneTile<T>& tile, int64_t begin, int64_t end)
      : t(tile), term(tile.a.pair), k0(begin), k1(end) {
    offsets_of_keys(t.a, t.sequence, k0, k1, 1, rows);
  }
  // Row of a lane in a table of queries, and of a lane's key j in a table of keys.
  int64_t query(int64_t lane) const { return t.row(lane) * t.a.heads + t.head(lane); }
  int64_t key(int64_t lane, int64_t j) const { return rows[j - k0] * t.a.heads + t.head(lane); }

  // The column that all pairs share, e.g. if all keys are beyond the longest distance; else -1.
  int32_t only_column() const {
    if (term.positions != nullptr || term.columns == nullptr) return -1;
    const int32_t* column = term.columns + term.reach;
    const int64_t nearest = t.first_position() - (k1 - 1), farthest = t.end_position() - 1 - k0;
    for (int64_t d = nearest + 1; d <= farthest; ++d)
      if (column[d] != column[nearest]) return -1;
    return column[nearest];
  }

  // Calls f(j, column) for a lane and each key.
  template <typename F>
  HWY_INLINE void for_columns(int64_t lane, const F& f) const {
    if (term.positions != nullptr) {
      const int32_t* column = term.columns + term.reach + term.positions[t.row(lane)];
      for (int64_t j = k0; j < k1; ++j) f(j, column[-term.positions[rows[j - k0]]]);
      return;
    }
    const int32_t* column = term.columns + term.reach + t.position(lane);
    for (int64_t j = k0; j < k1; ++j) f(j, column[-j]);
  }
  // Calls f(j, differ) for a lane and each key. `differ`: their segments differ.
  template <typename F>
  HWY_INLINE void for_segments(int64_t lane, const F& f) const {
    const int32_t segment = term.segments[t.row(lane)];
    for (int64_t j = k0; j < k1; ++j) f(j, segment != term.segments[rows[j - k0]]);
  }
};

// Adds the pair term, times `factor`, to the scores.
template <typename T>
HWY_NOINLINE void add_pair_term(const LaneTile<T>& t, int64_t k0, int64_t k1, float factor, float* scores) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const PairTile<T> tile(t, k0, k1);
  const PairTerm& term = tile.term;
  const auto at = [&](int64_t j, int64_t lane) -> float& { return scores[(j - k0) * kLanes + lane]; };
  const int32_t only = tile.only_column();
  if (term.by_query && only >= 0) {
    alignas(64) float of_lane[kLanes] = {};
    for (int64_t lane = 0; lane < t.count; ++lane)
      of_lane[lane] = factor * term.by_query[tile.query(lane) * term.width + only];
    for (int64_t j = k0; j < k1; ++j)
      for (int64_t n = 0; n < t.count; n += lanes) {
        float* s = scores + (j - k0) * kLanes + n;
        hn::StoreU(hn::Add(hn::LoadU(d, s), hn::LoadU(d, of_lane + n)), d, s);
      }
  }
  for (int64_t lane = 0; lane < t.count; ++lane) {
    if (term.by_query && only < 0) {
      const float* q = term.by_query + tile.query(lane) * term.width;
      tile.for_columns(lane, [&](int64_t j, int32_t c) { at(j, lane) += factor * q[c]; });
    }
    if (term.by_key)
      tile.for_columns(lane, [&](int64_t j, int32_t c) {
        at(j, lane) += factor * term.by_key[tile.key(lane, j) * term.width + c];
      });
    if (term.by_segment) {
      const float* q = term.by_segment + tile.query(lane) * 2;
      tile.for_segments(lane, [&](int64_t j, bool differ) { at(j, lane) += factor * q[differ]; });
    }
  }
}

// Adds dS to the gradients of the pair term's tables.
template <typename T>
HWY_NOINLINE void add_pair_grad(const LaneTile<T>& t, const PairTermGrad& grad, int64_t k0, int64_t k1,
                                const float* ds) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const PairTile<T> tile(t, k0, k1);
  const PairTerm& term = tile.term;
  const auto at = [&](int64_t j, int64_t lane) { return ds[(j - k0) * kLanes + lane]; };
  const int32_t only = tile.only_column();
  if (grad.by_query && only >= 0) {
    alignas(64) float sums[kLanes];
    for (int64_t n = 0; n < t.count; n += lanes) {
      VF sum = hn::Zero(d);
      for (int64_t j = k0; j < k1; ++j) sum = hn::Add(sum, hn::LoadU(d, ds + (j - k0) * kLanes + n));
      hn::StoreU(sum, d, sums + n);
    }
    for (int64_t lane = 0; lane < t.count; ++lane)
      grad.by_query[tile.query(lane) * term.width + only] += sums[lane];
  }
  for (int64_t lane = 0; lane < t.count; ++lane) {
    if (grad.by_query && only < 0) {
      float* q = grad.by_query + tile.query(lane) * term.width;
      tile.for_columns(lane, [&](int64_t j, int32_t c) { q[c] += at(j, lane); });
    }
    if (grad.by_key)
      tile.for_columns(lane, [&](int64_t j, int32_t c) {
        grad.by_key[tile.key(lane, j) * term.width + c] += at(j, lane);
      });
    if (grad.by_segment) {
      float* q = grad.by_segment + tile.query(lane) * 2;
      tile.for_segments(lane, [&](int64_t j, bool differ) { q[differ] += at(j, lane); });
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

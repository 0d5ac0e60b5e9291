// The lanes of attention's tiles (see attention-inl.h).
#if defined(QKV_KERNELS_CPU_LANE_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_LANE_TILE_INL_H
#undef QKV_KERNELS_CPU_LANE_TILE_INL_H
#else
#define QKV_KERNELS_CPU_LANE_TILE_INL_H
#endif

#include "qkv/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr int64_t kLanes = 64;  // lanes of a tile: a multiple of every vector length

// Row of k and v that holds key j.
template <typename T>
HWY_INLINE int64_t row_of_key(const Attention<T>& a, int64_t s, int64_t j) {
  return a.blocks[a.block_offsets[s] + j / a.block_rows] + j % a.block_rows;
}

// The places in k or v at which keys [k0, k1) begin. Rows are `stride` apart.
template <typename T>
HWY_INLINE void offsets_of_keys(const Attention<T>& a, int64_t s, int64_t k0, int64_t k1, int64_t stride,
                                int64_t* offsets) {
  const int64_t* block = a.blocks + a.block_offsets[s] + k0 / a.block_rows;
  int64_t within = k0 % a.block_rows;
  for (int64_t j = k0; j < k1; ++block, within = 0) {
    const int64_t end = std::min(k1, j + a.block_rows - within);
    for (int64_t at = (*block + within) * stride; j < end; ++j, at += stride) *offsets++ = at;
  }
}

// The lanes [begin, begin + count) of a task's (query, head) pairs.
template <typename T>
struct LaneTile {
  const Attention<T>& a;
  int64_t sequence, kv_head, first_query, begin, count;

  int64_t group() const { return a.heads / a.kv_heads; }
  int64_t query(int64_t lane) const { return first_query + (begin + lane) / group(); }
  int64_t head(int64_t lane) const { return kv_head * group() + (begin + lane) % group(); }
  int64_t row(int64_t lane) const { return a.q_offsets[sequence] + query(lane); }
  int64_t position(int64_t lane) const {
    return a.key_lengths[sequence] - (a.q_offsets[sequence + 1] - a.q_offsets[sequence]) + query(lane);
  }
  int64_t first_position() const { return position(0); }
  int64_t end_position() const { return position(count - 1) + 1; }
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

// Products of many rows of activations: rows of B are decoded into a panel once, and all rows of A use it.
// Tiles sum products of bytes over groups; VNNI sums them in 32 bits; without it they are summed in 16 bits
// as long as these suffice.
#if defined(QKV_KERNELS_CPU_QUANTIZED_PANEL_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_CPU_QUANTIZED_PANEL_INL_H
#undef QKV_KERNELS_CPU_QUANTIZED_PANEL_INL_H
#else
#define QKV_KERNELS_CPU_QUANTIZED_PANEL_INL_H
#endif

#include "qkv/kernels/cpu/quantized_forms-inl.h"

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

// Two or four neighbouring activations in every lane.
HWY_INLINE V16S pair_of(const int16_t* p) {
  int32_t pair;
  std::memcpy(&pair, p, 4);
  return hn::BitCast(D16S(), hn::Set(D32S(), pair));
}
HWY_INLINE V32S four_of(const int8_t* p) {
  int32_t four;
  std::memcpy(&four, p, 4);
  return hn::Set(D32S(), four);
}

// sum + pair_products(a, b), now.
template <bool vnni>
HWY_INLINE V32S add_pairs(V32S sum, V16S a, V16S b) {
  if constexpr (vnni)
    return V32S{vnni_pairs(sum.raw, a.raw, b.raw)};
  else
    return sum_now(D32S(), sum, pair_products(D32S(), a, b));
}

// The pointer, of which the compiler does not know where it came from: it would keep many sums of it in
// memory.
template <typename T>
HWY_INLINE const T* base(const T* p) {
  __asm__("" : "+r"(p));
  return p;
}

// Rows [r, r + kRows) of A times blocks [first, first + blocks) of k, which the panel holds, for two vectors
// of columns; adds to y. tile_sums: row r of the sums of groups that tiles computed (tile/groups.h), if
// kTiles.
template <class F, int64_t kRows, bool kTiles, class P>
HWY_INLINE void panel_rows(const QuantizedRows& a, int64_t r, int64_t first, int64_t blocks, const P& panel,
                           int64_t column, float* y, int64_t y_stride,
                           [[maybe_unused]] const int32_t* tile_sums = nullptr) {
  constexpr int64_t kColumns = P::kColumns;
  const DF d;
  const D32S d32;
  const D16S d16;
  constexpr int64_t kLanes = HWY_LANES(float), kElements = P::kElements;
  // Not fields of `a`, which the compiler would read again after each store to y.
  const int64_t groups = a.k / kMinimumGroup, factors = a.k / kElements, stride = a.stride;
  const int16_t* all_sums = a.sums + r * groups + first * (kElements / kMinimumGroup);
  const float* all_e = a.e + r * factors + first;
  VF sums[kRows][2];
  V32S dots[kRows][2];
  each<kRows>([&](auto i) HWY_ATTR {
    const float* from = y + i * y_stride + column;
    sums[i][0] = hn::LoadU(d, from), sums[i][1] = hn::LoadU(d, from + kLanes);
  });
  const auto set_dots = [&]() HWY_ATTR {
    each<kRows>([&](auto i) HWY_ATTR { dots[i][0] = dots[i][1] = hn::Zero(d32); });
  };
  // Adds the sums of `numbers` times the activations' sums.
  const auto add_sums = [&](const int16_t(*numbers)[kColumns][2], int64_t b) HWY_ATTR {
    const int16_t* of_groups = all_sums + b * (kElements / kMinimumGroup);
    for (int64_t p = 0; p < kElements / 32; ++p) {
      const auto n0 = hn::Load(d16, numbers[p][column]), n1 = hn::Load(d16, numbers[p][column + kLanes]);
      each<kRows>([&](auto i) HWY_ATTR {
        const V16S both = pair_of(of_groups + i * groups + 2 * p);
        dots[i][0] = add_pairs<F::kVnni>(dots[i][0], n0, both);
        dots[i][1] = add_pairs<F::kVnni>(dots[i][1], n1, both);
      });
    }
  };
  const auto take = [&](const float(&factor)[kColumns], int64_t b) HWY_ATTR {
    const VF f0 = hn::Load(d, factor + column), f1 = hn::Load(d, factor + column + kLanes);
    each<kRows>([&](auto i) HWY_ATTR {
      const VF e = hn::Set(d, all_e[i * factors + b]);
      sums[i][0] = hn::MulAdd(hn::Mul(f0, e), hn::ConvertTo(d, dots[i][0]), sums[i][0]);
      sums[i][1] = hn::MulAdd(hn::Mul(f1, e), hn::ConvertTo(d, dots[i][1]), sums[i][1]);
    });
  };
  for (int64_t b = 0; b < blocks; ++b) {
    set_dots();
    if constexpr (P::kBytes) {
      if constexpr (F::kOwnOffsets) add_sums(panel.offsets + b * (kElements / 32), b);
      if constexpr (F::kOffset != 0) {
        static_assert(kElements == 32);
        each<kRows>([&](auto i) HWY_ATTR {
          dots[i][0] = dots[i][1] =
              pair_products(d32, pair_of(all_sums + i * groups + 2 * b), hn::Set(d16, -F::kOffset));
        });
      }
      const int8_t* x = a.bytes + r * stride + (first + b) * kElements;
      const auto* w = base(panel.w[b * kElements / 4][column]);
      // f(lane of four numbers, its columns in w0 and w1) for kFours lanes from l on.
      const auto each_lane = [&]<int64_t kFours>(int64_t l, const auto& f) HWY_ATTR {
        each<kFours>([&](auto four) HWY_ATTR {
          const auto* at = w + (l + four) * kColumns * 4;
          f(four, load_lanes(at), load_lanes(at + kLanes * 4));
        });
      };
      const auto scale = [&](int64_t l, int64_t v) HWY_ATTR {
        return hn::Load(d16, panel.scales[(b * kElements + 4 * l) / F::kGroup][column + v * kLanes]);
      };
      if constexpr (F::kVnni) {
        constexpr int64_t kFours = F::kGroup / 4;
        const auto add_group = [&](V32S(&to)[kRows][2], int64_t l) HWY_ATTR {
          if constexpr (kTiles) {
            static_assert(F::kGroup == tile::kGroupElements && 2 * kLanes == tile::kGroupColumns);
            const int32_t* from =
                tile_sums + (b * kElements / F::kGroup + l / kFours) * tile::kGroupRows * tile::kGroupColumns;
            each<kRows>([&](auto i) HWY_ATTR {
              const int32_t* row = from + i * tile::kGroupColumns;
              to[i][0] = hn::Add(to[i][0], hn::LoadU(d32, row));
              to[i][1] = hn::Add(to[i][1], hn::LoadU(d32, row + kLanes));
            });
            return;
          }
          each_lane.template operator()<kFours>(l, [&](auto f, V32S w0, V32S w1) HWY_ATTR {
            each<kRows>([&](auto i) HWY_ATTR {
              const V32S four = four_of(x + i * stride + 4 * (l + f));
              to[i][0] = V32S{vnni_fours(to[i][0].raw, w0.raw, four.raw)};
              to[i][1] = V32S{vnni_fours(to[i][1].raw, w1.raw, four.raw)};
            });
          });
        };
        if constexpr (F::kScaled) {
          for (int64_t l = 0; l < kElements / 4; l += kFours) {
            V32S group[kRows][2];
            each<kRows>([&](auto i) HWY_ATTR { group[i][0] = group[i][1] = hn::Zero(d32); });
            add_group(group, l);
            each<2>([&](auto v) HWY_ATTR {
              const V32S scales = hn::BitCast(d32, scale(l, v));
              each<kRows>([&](auto i)
                              HWY_ATTR { dots[i][v] = hn::Add(dots[i][v], hn::Mul(group[i][v], scales)); });
            });
          }
        } else {
          add_group(dots, 0);
        }
      } else {
        // Sums of products that 16 bits hold.
        constexpr int64_t kAll = 32767 / (2 * 127 * F::kMost), kFours = kAll >= 8 ? 8 : kAll >= 4 ? 4 : 2;
        static_assert(kAll >= kFours && kFours * 4 <= F::kGroup);
        for (int64_t l = 0; l < kElements / 4; l += kFours) {
          V16S group[kRows][2];
          each_lane.template operator()<kFours>(l, [&](auto f, V32S w0, V32S w1) HWY_ATTR {
            each<kRows>([&](auto i) HWY_ATTR {
              const V32S four = four_of(x + i * stride + 4 * (l + f));
              const V16S p0 = byte_products(w0, four), p1 = byte_products(w1, four);
              group[i][0] = f == 0 ? p0 : sum_now(d16, group[i][0], p0);
              group[i][1] = f == 0 ? p1 : sum_now(d16, group[i][1], p1);
            });
          });
          each<2>([&](auto v) HWY_ATTR {
            V16S scales = hn::Set(d16, 1);
            if constexpr (F::kScaled) scales = scale(l, v);
            each<kRows>([&](auto i) HWY_ATTR {
              dots[i][v] = hn::Add(dots[i][v], pair_products(d32, group[i][v], scales));
            });
          });
        }
      }
    } else {
      const int16_t* x = a.x + r * stride + (first + b) * kElements;
      const auto* w = base(panel.w[b * kElements / 2][column]);
      for (int64_t l = 0; l < kElements / 2; l += 16)
        each<16>([&](auto f) HWY_ATTR {
          const auto w0 = hn::Load(d16, w + (l + f) * kColumns * 2),
                     w1 = hn::Load(d16, w + ((l + f) * kColumns + kLanes) * 2);
          each<kRows>([&](auto i) HWY_ATTR {
            const V16S both = pair_of(x + i * stride + 2 * (l + f));
            dots[i][0] = add_pairs<F::kVnni>(dots[i][0], w0, both);
            dots[i][1] = add_pairs<F::kVnni>(dots[i][1], w1, both);
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
  each<kRows>([&](auto i) HWY_ATTR {
    float* to = y + i * y_stride + column;
    hn::StoreU(sums[i][0], d, to), hn::StoreU(sums[i][1], d, to + kLanes);
  });
}

#if HWY_TARGET == HWY_AVX3
// The tiles of this thread.
template <PanelUnit unit>
class GroupTiles {
 public:
  GroupTiles() {
    if constexpr (unit == PanelUnit::amx) tile::configure_groups_amx();
  }
  ~GroupTiles() {
    if constexpr (unit == PanelUnit::amx) tile::release_amx();
  }
  GroupTiles(const GroupTiles&) = delete;
  GroupTiles& operator=(const GroupTiles&) = delete;
  static void sum(const tile::GroupSums& p) {
    unit == PanelUnit::amx ? tile::sum_groups_amx(p) : tile::sum_groups_emulated(p);
  }
};
#endif

// As many rows of A as fill tiles, of those from `r` on. Returns the first row that is left.
template <class F, PanelUnit unit, class P>
int64_t rows_by_tiles(const QuantizedRows& a, int64_t first, int64_t blocks, const P& panel, float* y,
                      int64_t y_stride) {
  int64_t r = 0;
#if HWY_TARGET == HWY_AVX3
  constexpr int64_t kGroups = P::kDepth / tile::kGroupElements, kAtOnce = 4;  // rows
  alignas(64) int32_t sums[kGroups * tile::kGroupRows * tile::kGroupColumns];
  const GroupTiles<unit> tiles;
  for (; r + tile::kGroupRows <= a.rows; r += tile::kGroupRows)
    for (int64_t c = 0; c < P::kColumns; c += tile::kGroupColumns) {
      tiles.sum({blocks * P::kElements / tile::kGroupElements, a.bytes + r * a.stride + first * P::kElements,
                 a.stride, panel.w[0][c], P::kColumns * 4, sums});
      for (int64_t i = 0; i < tile::kGroupRows; i += kAtOnce)
        panel_rows<F, kAtOnce, true>(a, r + i, first, blocks, panel, c, y + (r + i) * y_stride, y_stride,
                                     sums + i * tile::kGroupColumns);
    }
#endif
  return r;
}

template <class F, PanelUnit unit>
void panel_of(const QuantizedRows& a, const MatrixView& b, int64_t count, float* y, int64_t y_stride) {
  constexpr int64_t kStep = 2 * HWY_LANES(float), kColumns = 2 * kStep;
  static_assert(kPanelColumns % kColumns == 0);
  for (int64_t r = 0; r < a.rows; ++r) std::memset(y + r * y_stride, 0, kPanelColumns * sizeof(float));
  constexpr bool kTiles = [] {
    if constexpr (requires { F::kGroup; }) return on_tiles(unit) && F::kGroup == tile::kGroupElements;
    return false;
  }();
  // Sums by tiles of half as many elements stay in the first-level cache.
  using P = Panel<F, kColumns, kTiles ? 256 : 512>;
  P panel;
  for (int64_t j = 0; j < count; j += kColumns)
    for (int64_t l = 0; l < a.k; l += panel.kDepth) {
      const int64_t end = std::min(l + panel.kDepth, a.k), blocks = (end - l) / a.block;
      panel.decode(b.from(j, 0), l, end, std::min(kColumns, count - j));
      int64_t r = 0;
      if constexpr (kTiles) r = rows_by_tiles<F, unit>(a, l / a.block, blocks, panel, y + j, y_stride);
      const auto rows = [&](auto n) HWY_ATTR {
        constexpr int64_t kRows = decltype(n)::value;
        for (; r + kRows <= a.rows; r += kRows) {
          for (int64_t i = r + kRows; i < std::min(r + 2 * kRows, a.rows); ++i)
            for (int64_t at = l * P::kActivation; at < end * P::kActivation; at += 64)
              __builtin_prefetch(P::activations(a, i) + at);
          for (int64_t c = 0; c < kColumns; c += kStep)
            panel_rows<F, kRows, false>(a, r, l / a.block, blocks, panel, c, y + r * y_stride + j, y_stride);
        }
      };
      rows(std::integral_constant < int64_t, HWY_TARGET <= HWY_AVX3 ? 6 : 4 > ());
      rows(std::integral_constant<int64_t, 1>());
    }
}

template <PanelUnit unit>
void panel(const QuantizedRows& a, const MatrixView& b, int64_t count, float* y, int64_t y_stride) {
  using enum WeightType;
  constexpr bool vnni = unit != PanelUnit::vectors;
  switch (b.type) {
    case q4_0:
      return panel_of<Form<q4_0, vnni>, unit>(a, b, count, y, y_stride);
    case mxfp4:
      return panel_of<Form<mxfp4, vnni>, unit>(a, b, count, y, y_stride);
    case q4_k:
      return panel_of<Form<q4_k, vnni>, unit>(a, b, count, y, y_stride);
    case q5_k:
      return panel_of<Form<q5_k, vnni>, unit>(a, b, count, y, y_stride);
    case q6_k:
      return panel_of<Form<q6_k, vnni>, unit>(a, b, count, y, y_stride);
    case q8_0:
      return panel_of<Form<q8_0, vnni>, unit>(a, b, count, y, y_stride);
    case q4_1:
    case q5_1:
      return panel_of<OtherForm<32, true, vnni>, unit>(a, b, count, y, y_stride);
    case q2_k:
      return panel_of<OtherForm<256, true, vnni>, unit>(a, b, count, y, y_stride);
    case q3_k:
    case iq4_xs:
      return panel_of<OtherForm<256, false, vnni>, unit>(a, b, count, y, y_stride);
    default:
      return panel_of<OtherForm<32, false, vnni>, unit>(a, b, count, y, y_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();
#endif

// Formats whose levels are those of a table: iq4_nl and iq4_xs. The steps are those of ggml's
// quantize_row_iq4_nl_impl(): Copyright (c) 2023-2026 The ggml authors, MIT (LICENSE.ggml).
#include "qkv/quant/float16.h"
#include "qkv/quant/quantize_rows.h"
#include "qkv/quant/quantize_search.h"

namespace qkv::quant {
namespace {

constexpr int kGroup = 32, kHalf = 16, kTries = 7;

// The table's number nearest to x, the greater of two equally near.
int nearest_level(float x) {
  const auto value = [](int i) { return static_cast<float>(kIq4Values[i]); };
  if (x <= value(0)) return 0;
  if (x >= value(15)) return 15;
  int below = 0, above = 15;
  while (above - below > 1) {
    const int middle = (below + above) / 2;
    if (x < value(middle))
      above = middle;
    else
      below = middle;
  }
  return x - value(above - 1) < value(above) - x ? above - 1 : above;
}

// Weighted sums of value * x and of value^2 for the levels that `inverse` gives.
struct Sums {
  float vx = 0, vv = 0;
};
Sums sums_for(const Group& group, float inverse) {
  Sums sums;
  for (int i = 0; i < group.n; ++i) {
    const auto value = static_cast<float>(kIq4Values[nearest_level(inverse * group.x[i])]);
    const float w = group.weights[i];
    sums.vx += w * value * group.x[i];
    sums.vv += w * value * value;
  }
  return sums;
}

// Scale of a group: tries those that give the extreme number one of fifteen values about the table's first.
float fit_table_scale(const Group& group) {
  const float max = extreme(group.x, group.n);
  if (std::fabs(max) < kZeroGroup) return 0;
  const auto first = static_cast<float>(kIq4Values[0]);
  Sums sums = sums_for(group, 1 / (-max / first));
  float scale = sums.vv > 0 ? sums.vx / sums.vv : 0;
  float best = scale * sums.vx;
  for (int k = -kTries; k <= kTries; ++k) {
    sums = sums_for(group, (static_cast<float>(k) + first) / max);
    if (sums.vv > 0 && sums.vx * sums.vx > best * sums.vv) {
      scale = sums.vx / sums.vv;
      best = scale * sums.vx;
    }
  }
  return scale;
}

// The scale of group [g * 32, (g + 1) * 32) of a block; without importance numbers weigh by their squares.
float scale_of(const float* x, const float* importance, float variance) {
  float weights[kGroup];
  if (importance) {
    weigh(x, importance, variance, kGroup, weights);
  } else {
    for (int i = 0; i < kGroup; ++i) weights[i] = x[i] * x[i];
  }
  return fit_table_scale({.x = x, .weights = weights, .n = kGroup});
}

float variance_of(const float* x, int n) {
  return sum_of_squares(x, n) * (2.0f / static_cast<float>(n));
}

void pack_levels(const float* x, float inverse, uint8_t* qs) {
  for (int i = 0; i < kHalf; ++i)
    qs[i] = static_cast<uint8_t>(nearest_level(inverse * x[i]) | nearest_level(inverse * x[i + kHalf]) << 4);
}

}  // namespace

void encode(const Row& row, BlockIq4Nl* blocks) {
  for (int64_t b = 0; b < row.n / kGroup; ++b) {
    const float* x = row.numbers(b, kGroup);
    const float scale = scale_of(x, row.importance_at(b, kGroup), variance_of(x, kGroup));
    blocks[b].d = round_to_f16(scale);
    pack_levels(x, scale != 0 ? 1 / scale : 0, blocks[b].qs);
  }
}

void encode(const Row& row, BlockIq4Xs* blocks) {
  constexpr int kBlock = 256, kGroups = 8;
  for (int64_t b = 0; b < row.n / kBlock; ++b) {
    const float* x = row.numbers(b, kBlock);
    const float* importance = row.importance_at(b, kBlock);
    const float variance = variance_of(x, kBlock);
    float scales[kGroups];
    for (int g = 0; g < kGroups; ++g)
      scales[g] = scale_of(x + kGroup * g, importance ? importance + kGroup * g : nullptr, variance);
    const float d = -extreme(scales, kGroups) / 32;
    const float inverse = d != 0 ? 1 / d : 0;
    blocks[b].d = round_to_f16(d);
    int low[kGroups];
    int high = 0;
    for (int g = 0; g < kGroups; ++g) {
      const int level = std::max(-32, std::min(31, nearest(inverse * scales[g])));
      const float scale = d * static_cast<float>(level);  // d is not rounded here
      pack_levels(x + kGroup * g, scale != 0 ? 1 / scale : 0, blocks[b].qs + kHalf * g);
      low[g] = (level + 32) & 15;
      high |= (level + 32) >> 4 << (2 * g);
    }
    for (int g = 0; g < kGroups; g += 2)
      blocks[b].scales_l[g / 2] = static_cast<uint8_t>(low[g] | low[g + 1] << 4);
    blocks[b].scales_h = static_cast<uint16_t>(high);
  }
}

}  // namespace qkv::quant

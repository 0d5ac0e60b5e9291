// Formats of 32 numbers with a scale of their own. The steps are those of ggml's quantize_row_*(): Copyright
// (c) 2023-2026 The ggml authors, MIT (LICENSE.ggml).
#include "qkv/quant/float16.h"
#include "qkv/quant/quantize_rows.h"
#include "qkv/quant/quantize_search.h"

namespace qkv::quant {
namespace {

constexpr int kGroup = 32, kHalf = 16;
// The scales that formats with a minimum try where columns have an importance.
constexpr AffineGrid kWeightedGrid{.top = 0, .first = -0.9f, .step = 0.05f, .steps = 36};

AffineGrid weighted_grid(int top) {
  AffineGrid grid = kWeightedGrid;
  grid.top = top;
  return grid;
}

float variance_of(const Row& row) {
  return sum_of_squares(row.x, row.n) / static_cast<float>(row.n);
}

// Inverse of a scale; 0 for 0.
float inverse_of(float d) {
  return d != 0 ? 1.0f / d : 0.0f;
}

struct Range {
  float min, max;
};
Range range_of(const float* x) {
  Range range{.min = std::numeric_limits<float>::max(), .max = -std::numeric_limits<float>::max()};
  for (int i = 0; i < kGroup; ++i) {
    if (x[i] < range.min) range.min = x[i];
    if (x[i] > range.max) range.max = x[i];
  }
  return range;
}

template <typename Level>
void pack_nibbles(const Level* levels, uint8_t (&qs)[kHalf]) {
  for (int i = 0; i < kHalf; ++i)
    qs[i] = static_cast<uint8_t>((levels[i] & 15) | (levels[i + kHalf] & 15) << 4);
}

template <typename Level>
void pack_fifth_bits(const Level* levels, uint8_t (&qh)[4]) {
  for (int byte = 0; byte < 4; ++byte) {
    int bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (levels[8 * byte + i] >> 4 & 1) << i;
    qh[byte] = static_cast<uint8_t>(bits);
  }
}

// Levels round(x / d) + bound of [0, 2 * bound) as the formats without a minimum take them, where `max`, the
// extreme number, becomes level 0. Returns d.
float plain_levels(const float* x, int bound, int8_t* levels) {
  const float d = extreme(x, kGroup) / static_cast<float>(-bound);
  const float inverse = inverse_of(d);
  for (int i = 0; i < kGroup; ++i) {
    const auto level = static_cast<int8_t>(truncate(x[i] * inverse + (static_cast<float>(bound) + 0.5f)));
    levels[i] = std::min(static_cast<int8_t>(2 * bound - 1), level);
  }
  return d;
}

float signed_levels(const Row& row, int64_t block, float variance, int bound, int8_t* levels) {
  const float* x = row.numbers(block, kGroup);
  if (!row.importance) return plain_levels(x, bound, levels);
  float weights[kGroup];
  weigh(x, row.importance_at(block, kGroup), variance, kGroup, weights);
  return fit_scale({.x = x, .weights = weights, .n = kGroup}, bound, levels);
}

// Levels in [0, top] of x(i) ~ scale * l(i) + min.
struct ScaleAndOffset {
  float scale, min;
};
ScaleAndOffset levels_from_min(const Row& row, int64_t block, float variance, int top, uint8_t* levels) {
  const float* x = row.numbers(block, kGroup);
  if (row.importance) {
    float weights[kGroup];
    weigh(x, row.importance_at(block, kGroup), variance, kGroup, weights);
    const Affine fit = fit_affine({.x = x, .weights = weights, .n = kGroup}, weighted_grid(top), levels);
    return {.scale = fit.scale, .min = -fit.min};
  }
  const Range range = range_of(x);
  const float d = (range.max - range.min) / static_cast<float>(top);
  const float inverse = inverse_of(d);
  for (int i = 0; i < kGroup; ++i) {
    const int32_t level = truncate((x[i] - range.min) * inverse + 0.5f);
    // Casts as ggml's: q4_1 has a signed byte and a bound, q5_1 an unsigned byte and none.
    levels[i] = top == 15 ? static_cast<uint8_t>(std::min<int8_t>(15, static_cast<int8_t>(level)))
                          : static_cast<uint8_t>(level);
  }
  return {.scale = d, .min = range.min};
}

// The level of E2M1 that is nearest to x / scale, the first of equals.
uint8_t nearest_fp4(float x, float scale) {
  int best = 0;
  float least = std::fabs(static_cast<float>(kMxfp4Values[0]) * scale - x);
  for (int i = 1; i < 16; ++i) {
    const float error = std::fabs(static_cast<float>(kMxfp4Values[i]) * scale - x);
    if (error < least) {
      best = i;
      least = error;
    }
  }
  return static_cast<uint8_t>(best);
}

}  // namespace

void encode(const Row& row, BlockQ40* blocks) {
  const float variance = row.importance ? variance_of(row) : 0;
  for (int64_t b = 0; b < row.n / kGroup; ++b) {
    int8_t levels[kGroup];
    blocks[b].d = round_to_f16(signed_levels(row, b, variance, 8, levels));
    pack_nibbles(levels, blocks[b].qs);
  }
}

void encode(const Row& row, BlockQ41* blocks) {
  const float variance = row.importance ? variance_of(row) : 0;
  for (int64_t b = 0; b < row.n / kGroup; ++b) {
    uint8_t levels[kGroup];
    const ScaleAndOffset fit = levels_from_min(row, b, variance, 15, levels);
    blocks[b].d = round_to_f16(fit.scale);
    blocks[b].m = round_to_f16(fit.min);
    pack_nibbles(levels, blocks[b].qs);
  }
}

void encode(const Row& row, BlockQ50* blocks) {
  const float variance = row.importance ? variance_of(row) : 0;
  for (int64_t b = 0; b < row.n / kGroup; ++b) {
    int8_t levels[kGroup];
    blocks[b].d = round_to_f16(signed_levels(row, b, variance, 16, levels));
    pack_nibbles(levels, blocks[b].qs);
    pack_fifth_bits(levels, blocks[b].qh);
  }
}

void encode(const Row& row, BlockQ51* blocks) {
  const float variance = row.importance ? variance_of(row) : 0;
  for (int64_t b = 0; b < row.n / kGroup; ++b) {
    uint8_t levels[kGroup];
    const ScaleAndOffset fit = levels_from_min(row, b, variance, 31, levels);
    blocks[b].d = round_to_f16(fit.scale);
    blocks[b].m = round_to_f16(fit.min);
    pack_nibbles(levels, blocks[b].qs);
    pack_fifth_bits(levels, blocks[b].qh);
  }
}

// Importance does not change these two.
void encode(const Row& row, BlockQ80* blocks) {
  for (int64_t b = 0; b < row.n / kGroup; ++b) {
    const float* x = row.numbers(b, kGroup);
    const float d = std::fabs(extreme(x, kGroup)) / 127;
    const float inverse = inverse_of(d);
    blocks[b].d = round_to_f16(d);
    for (int i = 0; i < kGroup; ++i)
      blocks[b].qs[i] = static_cast<int8_t>(truncate(std::round(x[i] * inverse)));
  }
}

void encode(const Row& row, BlockMxfp4* blocks) {
  for (int64_t b = 0; b < row.n / kGroup; ++b) {
    const float* x = row.numbers(b, kGroup);
    const float max = std::fabs(extreme(x, kGroup));
    const float exponent = max > 0 ? std::floor(std::log2(max)) - 2 + 127 : 0;
    blocks[b].e = static_cast<uint8_t>(truncate(exponent));
    uint8_t levels[kGroup];
    for (int i = 0; i < kGroup; ++i) levels[i] = nearest_fp4(x[i], mxfp4_scale(blocks[b].e));
    pack_nibbles(levels, blocks[b].qs);
  }
}

}  // namespace qkv::quant

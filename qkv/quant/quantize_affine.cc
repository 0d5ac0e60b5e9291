// Formats of 256 numbers in groups with a scale and a minimum: q2_k, q4_k and q5_k. The steps are those of
// ggml's quantize_row_q*_K_ref() and _impl(): Copyright (c) 2023-2026 The ggml authors, MIT (LICENSE.ggml).
#include "qkv/quant/float16.h"
#include "qkv/quant/quantize_packing.h"
#include "qkv/quant/quantize_rows.h"
#include "qkv/quant/quantize_search.h"

namespace qkv::quant {
namespace {

constexpr int kBlock = 256;

AffineGrid weighted_grid(int top) {
  return {.top = top, .first = -0.9f, .step = 0.05f, .steps = 36};
}

// The largest of numbers that are not negative.
float largest(const float* x, int n) {
  float max = 0;
  for (int i = 0; i < n; ++i) {
    if (x[i] > max) max = x[i];
  }
  return max;
}

// The levels of a group for the scale and minimum that the file will hold; `levels` stays where the scale is
// 0.
void requantize(const float* x, int n, float scale, float min, int top, uint8_t* levels) {
  if (scale == 0) return;
  for (int i = 0; i < n; ++i)
    levels[i] = static_cast<uint8_t>(std::max(0, std::min(top, nearest((x[i] + min) / scale))));
}

// q4_k and q5_k differ in their levels only.

constexpr int kGroups = 8, kGroup = kBlock / kGroups;

void pack_scale_and_min(ScaleAndMin pair, int group, uint8_t (&scales)[12]) {
  if (group < 4) {
    scales[group] = pair.scale;
    scales[group + 4] = pair.min;
  } else {
    scales[group + 4] = static_cast<uint8_t>((pair.scale & 15) | (pair.min & 15) << 4);
    scales[group - 4] = static_cast<uint8_t>(scales[group - 4] | pair.scale >> 4 << 6);
    scales[group] = static_cast<uint8_t>(scales[group] | pair.min >> 4 << 6);
  }
}

// Without importance: each group weighs by its numbers' mean and own magnitude, and the largest scale is 63.
template <typename Block>
void fit_plainly(const float* x, const AffineGrid& grid, Block* block, uint8_t* levels) {
  float scales[kGroups], mins[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    const float* group = x + kGroup * g;
    const float mean = std::sqrt(sum_of_squares(group, kGroup) / kGroup);
    float weights[kGroup];
    for (int i = 0; i < kGroup; ++i) weights[i] = mean + std::fabs(group[i]);
    const Affine fit = fit_affine({.x = group, .weights = weights, .n = kGroup}, grid, levels + kGroup * g);
    scales[g] = fit.scale;
    mins[g] = fit.min;
  }
  const float max_scale = largest(scales, kGroups), max_min = largest(mins, kGroups);
  const float inverse_scale = max_scale > 0 ? 63.0f / max_scale : 0.0f;
  const float inverse_min = max_min > 0 ? 63.0f / max_min : 0.0f;
  const auto six_bits = [](float number) {
    return std::min(uint8_t{63}, static_cast<uint8_t>(nearest(number)));
  };
  for (int g = 0; g < kGroups; ++g)
    pack_scale_and_min({.scale = six_bits(inverse_scale * scales[g]), .min = six_bits(inverse_min * mins[g])},
                       g, block->scales);
  block->d = round_to_f16(max_scale / 63.0f);
  block->dmin = round_to_f16(max_min / 63.0f);
}

// With importance: the scales and minima are fitted, too, each group by the sum of its weights.
template <typename Block>
void fit_by_importance(const float* x, const float* importance, int top, Block* block, uint8_t* levels) {
  const float variance = 2 * sum_of_squares(x, kBlock) / kBlock;
  float scales[kGroups], mins[kGroups], totals[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    const float* group = x + kGroup * g;
    float weights[kGroup];
    weigh(group, importance + kGroup * g, variance, kGroup, weights);
    totals[g] = sum(weights, kGroup);
    const Affine fit =
        fit_affine({.x = group, .weights = weights, .n = kGroup}, weighted_grid(top), levels + kGroup * g);
    scales[g] = fit.scale;
    mins[g] = fit.min;
  }
  uint8_t scale_levels[kGroups], min_levels[kGroups];
  const float d = fit_positive_scale({.x = scales, .weights = totals, .n = kGroups}, 63, scale_levels);
  const float dmin = fit_positive_scale({.x = mins, .weights = totals, .n = kGroups}, 63, min_levels);
  // Levels of scales below zero wrap around; ggml bounds them in q5_k only.
  constexpr uint8_t kMost = Block::kType == WeightType::q5_k ? 63 : 255;
  for (int g = 0; g < kGroups; ++g)
    pack_scale_and_min({.scale = std::min(kMost, scale_levels[g]), .min = std::min(kMost, min_levels[g])}, g,
                       block->scales);
  block->d = round_to_f16(d);
  block->dmin = round_to_f16(dmin);
}

template <typename Block>
void fit_block(const Row& row, int64_t b, const AffineGrid& grid, Block* block, uint8_t (&levels)[kBlock]) {
  const float* x = row.numbers(b, kBlock);
  if (row.importance)
    fit_by_importance(x, row.importance_at(b, kBlock), grid.top, block, levels);
  else
    fit_plainly(x, grid, block, levels);
  const float d = float_from_f16(block->d.bits), dmin = float_from_f16(block->dmin.bits);
  for (int g = 0; g < kGroups; ++g) {
    const ScaleAndMin pair = scale_and_min(block->scales, g);
    requantize(x + kGroup * g, kGroup, d * static_cast<float>(pair.scale),
               dmin * static_cast<float>(pair.min), grid.top, levels + kGroup * g);
  }
}

// q2_k: sixteen groups of sixteen.

constexpr int kSmallGroups = 16, kSmallGroup = kBlock / kSmallGroups;
constexpr AffineGrid kGridQ2{.top = 3, .first = -0.5f, .step = 0.1f, .steps = 15, .absolute = true};

// The lower half of each byte of scales, and d or dmin: numbers in units of the largest / 15.
Float16 fit_four_bits(const float (&numbers)[kSmallGroups], int shift, uint8_t (&scales)[kSmallGroups]) {
  const float max = largest(numbers, kSmallGroups);
  if (!(max > 0)) return round_to_f16(0);
  const float inverse = 15.0f / max;
  for (int g = 0; g < kSmallGroups; ++g)
    scales[g] = static_cast<uint8_t>(scales[g] | nearest(inverse * numbers[g]) << shift);
  return round_to_f16(max / 15.0f);
}

void fit_q2_plainly(const float* x, BlockQ2K* block, uint8_t* levels) {
  float scales[kSmallGroups], mins[kSmallGroups];
  for (int g = 0; g < kSmallGroups; ++g) {
    const float* group = x + kSmallGroup * g;
    float weights[kSmallGroup];
    for (int i = 0; i < kSmallGroup; ++i) weights[i] = std::fabs(group[i]);
    const Affine fit =
        fit_affine({.x = group, .weights = weights, .n = kSmallGroup}, kGridQ2, levels + kSmallGroup * g);
    scales[g] = fit.scale;
    mins[g] = fit.min;
  }
  std::fill_n(block->scales, kSmallGroups, uint8_t{0});
  block->d = fit_four_bits(scales, 0, block->scales);
  block->dmin = fit_four_bits(mins, 4, block->scales);
}

void fit_q2_by_importance(const float* x, const float* importance, BlockQ2K* block, uint8_t* levels) {
  const float variance = sum_of_squares(x, kBlock) / kBlock;
  float scales[kSmallGroups], mins[kSmallGroups], totals[kSmallGroups];
  for (int g = 0; g < kSmallGroups; ++g) {
    const float* group = x + kSmallGroup * g;
    float weights[kSmallGroup];
    weigh(group, importance + kSmallGroup * g, variance, kSmallGroup, weights);
    totals[g] = sum(weights, kSmallGroup);
    const Affine fit = fit_affine({.x = group, .weights = weights, .n = kSmallGroup}, weighted_grid(3),
                                  levels + kSmallGroup * g);
    scales[g] = fit.scale;
    mins[g] = fit.min;
  }
  uint8_t scale_levels[kSmallGroups], min_levels[kSmallGroups];
  const float d = fit_positive_scale({.x = scales, .weights = totals, .n = kSmallGroups}, 15, scale_levels);
  const float dmin = fit_positive_scale({.x = mins, .weights = totals, .n = kSmallGroups}, 15, min_levels);
  block->d = round_to_f16(d);
  block->dmin = round_to_f16(dmin);
  for (int g = 0; g < kSmallGroups; ++g)
    block->scales[g] = static_cast<uint8_t>(scale_levels[g] | min_levels[g] << 4);
}

}  // namespace

void encode(const Row& row, BlockQ2K* blocks) {
  for (int64_t b = 0; b < row.n / kBlock; ++b) {
    const float* x = row.numbers(b, kBlock);
    BlockQ2K& block = blocks[b];
    uint8_t levels[kBlock];
    if (row.importance)
      fit_q2_by_importance(x, row.importance_at(b, kBlock), &block, levels);
    else
      fit_q2_plainly(x, &block, levels);
    const float d = float_from_f16(block.d.bits), dmin = float_from_f16(block.dmin.bits);
    for (int g = 0; g < kSmallGroups; ++g)
      requantize(x + kSmallGroup * g, kSmallGroup, d * static_cast<float>(block.scales[g] & 15),
                 dmin * static_cast<float>(block.scales[g] >> 4), 3, levels + kSmallGroup * g);
    pack_two_bits(levels, block.qs);
  }
}

void encode(const Row& row, BlockQ4K* blocks) {
  constexpr AffineGrid kGrid{.top = 15, .first = -1.0f, .step = 0.1f, .steps = 20};
  for (int64_t b = 0; b < row.n / kBlock; ++b) {
    uint8_t levels[kBlock];
    fit_block(row, b, kGrid, &blocks[b], levels);
    pack_nibbles<64>(levels, blocks[b].qs);
  }
}

void encode(const Row& row, BlockQ5K* blocks) {
  constexpr AffineGrid kGrid{.top = 31, .first = -0.5f, .step = 0.1f, .steps = 15};
  for (int64_t b = 0; b < row.n / kBlock; ++b) {
    uint8_t levels[kBlock];
    fit_block(row, b, kGrid, &blocks[b], levels);
    pack_nibbles<64>(levels, blocks[b].qs);
    pack_one_bit(levels, 4, blocks[b].qh);
  }
}

}  // namespace qkv::quant

// Formats of 256 numbers in sixteen groups with a scale and no minimum: q3_k and q6_k. The steps are those of
// ggml's quantize_row_q*_K_ref() and _impl(): Copyright (c) 2023-2026 The ggml authors, MIT (LICENSE.ggml).
#include "qkv/quant/float16.h"
#include "qkv/quant/quantize_packing.h"
#include "qkv/quant/quantize_rows.h"
#include "qkv/quant/quantize_search.h"

namespace qkv::quant {
namespace {

constexpr int kBlock = 256, kGroups = 16, kGroup = kBlock / kGroups;

// The levels of a group for the scale that the file will hold; `levels` stays where the scale is 0.
void requantize(const float* x, float scale, int bound, int8_t* levels) {
  if (scale == 0) return;
  for (int i = 0; i < kGroup; ++i)
    levels[i] = static_cast<int8_t>(std::max(-bound, std::min(bound - 1, nearest(x[i] / scale))) + bound);
}

void unsigned_levels(const int8_t (&levels)[kBlock], uint8_t (&out)[kBlock]) {
  for (int i = 0; i < kBlock; ++i) out[i] = static_cast<uint8_t>(levels[i]);
}

// Adds the scale of a group of q3_k, as a level in [0, 64), to bytes that begin as zeros.
void pack_q3_scale(int level, int group, uint8_t (&scales)[12]) {
  if (group < 8)
    scales[group] = static_cast<uint8_t>(level & 15);
  else
    scales[group - 8] = static_cast<uint8_t>(scales[group - 8] | (level & 15) << 4);
  scales[8 + group % 4] = static_cast<uint8_t>(scales[8 + group % 4] | level >> 4 << (2 * (group / 4)));
}

void fit_q3_plainly(const float* x, BlockQ3K* block, int8_t* levels) {
  float scales[kGroups];
  for (int g = 0; g < kGroups; ++g)
    scales[g] = fit_scale_by_moves(x + kGroup * g, kGroup, 4, levels + kGroup * g);
  const float max = extreme(scales, kGroups);
  if (max == 0) {
    block->d = round_to_f16(0);
    return;
  }
  const float inverse = -32.0f / max;
  for (int g = 0; g < kGroups; ++g) {
    const auto level = static_cast<int8_t>(nearest(inverse * scales[g]));
    pack_q3_scale(std::max(-32, std::min(31, static_cast<int>(level))) + 32, g, block->scales);
  }
  block->d = round_to_f16(1 / inverse);
}

void fit_q3_by_importance(const float* x, const float* importance, BlockQ3K* block, int8_t* levels) {
  const float variance = 2 * sum_of_squares(x, kBlock) / kBlock;
  float scales[kGroups], totals[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    const float* group = x + kGroup * g;
    float weights[kGroup];
    weigh(group, importance + kGroup * g, variance, kGroup, weights);
    totals[g] = sum(weights, kGroup);
    scales[g] = fit_scale({.x = group, .weights = weights, .n = kGroup}, 4, levels + kGroup * g);
  }
  int8_t scale_levels[kGroups];
  block->d = round_to_f16(fit_scale({.x = scales, .weights = totals, .n = kGroups}, 32, scale_levels));
  for (int g = 0; g < kGroups; ++g) pack_q3_scale(scale_levels[g], g, block->scales);
}

}  // namespace

void encode(const Row& row, BlockQ3K* blocks) {
  for (int64_t b = 0; b < row.n / kBlock; ++b) {
    const float* x = row.numbers(b, kBlock);
    BlockQ3K& block = blocks[b];
    std::fill_n(block.scales, sizeof block.scales, uint8_t{0});
    int8_t levels[kBlock];
    if (row.importance)
      fit_q3_by_importance(x, row.importance_at(b, kBlock), &block, levels);
    else
      fit_q3_plainly(x, &block, levels);
    const float d = float_from_f16(block.d.bits);
    for (int g = 0; g < kGroups; ++g)
      requantize(x + kGroup * g, d * static_cast<float>(q3_scale(block.scales, g)), 4, levels + kGroup * g);
    uint8_t bits[kBlock];
    unsigned_levels(levels, bits);
    pack_one_bit(bits, 2, block.hmask);
    for (uint8_t& level : bits) level &= 3;
    pack_two_bits(bits, block.qs);
  }
}

void encode(const Row& row, BlockQ6K* blocks) {
  for (int64_t b = 0; b < row.n / kBlock; ++b) {
    const float* x = row.numbers(b, kBlock);
    const float* importance = row.importance_at(b, kBlock);
    BlockQ6K& block = blocks[b];
    int8_t levels[kBlock];
    float scales[kGroups];
    for (int g = 0; g < kGroups; ++g) {
      const float* weights = importance ? importance + kGroup * g : nullptr;
      scales[g] = fit_scale({.x = x + kGroup * g, .weights = weights, .n = kGroup}, 32, levels + kGroup * g);
    }
    const float max = extreme(scales, kGroups);
    if (std::fabs(max) < kZeroGroup) {
      block = {};
      continue;
    }
    const float inverse = -128.0f / max;
    block.d = round_to_f16(1 / inverse);
    for (int g = 0; g < kGroups; ++g)
      block.scales[g] = static_cast<int8_t>(std::min(127, nearest(inverse * scales[g])));
    const float d = float_from_f16(block.d.bits);
    for (int g = 0; g < kGroups; ++g)
      requantize(x + kGroup * g, d * static_cast<float>(block.scales[g]), 32, levels + kGroup * g);
    uint8_t bits[kBlock];
    unsigned_levels(levels, bits);
    pack_nibbles<128>(bits, block.ql);
    for (uint8_t& level : bits) level = static_cast<uint8_t>(level >> 4);
    pack_two_bits(bits, block.qh);
  }
}

}  // namespace qkv::quant

// Rows of each block format from numbers: what quantize_row() calls. Bytes as ggml's (LICENSE.ggml).
#pragma once

#include <cstdint>

#include "qkv/quant/blocks.h"

namespace qkv::quant {

// A row of numbers x[0, n), and the importance [n] of its columns or null.
struct Row {
  const float* x;
  const float* importance;
  int64_t n;

  // The numbers of block `index`, which has so many elements.
  const float* numbers(int64_t index, int64_t elements) const { return x + index * elements; }
  const float* importance_at(int64_t index, int64_t elements) const {
    return importance ? importance + index * elements : nullptr;
  }
};

// Groups of 32 numbers with a scale (quantize_groups.cc).
void encode(const Row& row, BlockQ40* blocks);
void encode(const Row& row, BlockQ41* blocks);
void encode(const Row& row, BlockQ50* blocks);
void encode(const Row& row, BlockQ51* blocks);
void encode(const Row& row, BlockQ80* blocks);
void encode(const Row& row, BlockMxfp4* blocks);
// 256 numbers in groups whose scales are quantised as well (quantize_affine.cc, quantize_symmetric.cc).
void encode(const Row& row, BlockQ2K* blocks);
void encode(const Row& row, BlockQ3K* blocks);
void encode(const Row& row, BlockQ4K* blocks);
void encode(const Row& row, BlockQ5K* blocks);
void encode(const Row& row, BlockQ6K* blocks);
// Levels from a table (quantize_iq4.cc).
void encode(const Row& row, BlockIq4Nl* blocks);
void encode(const Row& row, BlockIq4Xs* blocks);

}  // namespace qkv::quant

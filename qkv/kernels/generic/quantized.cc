// The plain loops of products by quantised weights: the meaning of the fast ones.
#include <algorithm>
#include <cmath>
#include <limits>

#include "qkv/kernels/quantized_kernels.h"
#include "qkv/quant/block_integers.h"

namespace qkv {
namespace {

void quantize(int64_t k, int64_t block, const float* x, int16_t* q, int8_t* bytes, float* e, int16_t* sums) {
  for (int64_t begin = 0; begin < k; begin += block) {
    float most = 0;
    bool finite = true;
    for (int64_t l = begin; l < begin + block; ++l) {
      most = std::max(most, std::abs(x[l]));
      finite = finite && std::isfinite(x[l]);
    }
    const bool zero = !finite || most < kLeastActivation;
    const float inverse = zero ? 0 : 127 / most;
    e[begin / block] = !finite ? std::numeric_limits<float>::quiet_NaN() : zero ? 0 : most / 127;
    for (int64_t l = begin; l < begin + block; ++l)
      bytes[l] = static_cast<int8_t>(q[l] = zero ? int16_t{0}
                                                 : static_cast<int16_t>(std::nearbyint(x[l] * inverse)));
  }
  for (int64_t g = 0; g < k / kMinimumGroup; ++g) {
    int sum = 0;
    for (int64_t l = g * kMinimumGroup; l < (g + 1) * kMinimumGroup; ++l) sum += q[l];
    sums[g] = static_cast<int16_t>(sum);
  }
}

// Rows [row, row + rows) of A times row j of B.
void rows_by_one(const QuantizedRows& a, int64_t row, int64_t rows, const MatrixView& b, int64_t j, float* y,
                 int64_t y_stride) {
  const BlockLayout& layout = layout_of(b.type);
  const auto* blocks = static_cast<const std::byte*>(b.from(j, 0).data);
  for (int64_t r = 0; r < rows; ++r) y[r * y_stride] = 0;
  for (int64_t i = 0; i < a.k / layout.elements; ++i) {
    const BlockIntegers block = block_integers(b.type, blocks + i * layout.bytes);
    for (int64_t r = 0; r < rows; ++r) {
      const int16_t* x = a.x + (row + r) * a.stride + i * layout.elements;
      const float e = a.e[(row + r) * (a.k / a.block) + i];
      int32_t dot = 0, minima = 0;
      for (int64_t l = 0; l < layout.elements; ++l) dot += block.w[l] * x[l];
      float& sum = y[r * y_stride];
      sum = std::fma(block.d * e, static_cast<float>(dot), sum);
      if (!has_minima(b.type)) continue;
      const int64_t groups = layout.elements / kMinimumGroup;
      const int16_t* sums = a.sums + (row + r) * (a.k / kMinimumGroup) + i * groups;
      for (int64_t g = 0; g < groups; ++g) minima += block.u[g] * sums[g];
      sum = std::fma(block.m * e, static_cast<float>(minima), sum);
    }
  }
}

void dots(const QuantizedRows& a, int64_t row, const MatrixView& b, int64_t count, float* y) {
  for (int64_t j = 0; j < count; ++j) rows_by_one(a, row, 1, b, j, y + j, 1);
}

void panel(const QuantizedRows& a, const MatrixView& b, int64_t count, float* y, int64_t y_stride) {
  for (int64_t j = 0; j < count; ++j) rows_by_one(a, 0, a.rows, b, j, y + j, y_stride);
}

}  // namespace

const QuantizedKernels& generic_quantized_kernels() {
  static const QuantizedKernels table = {"generic", quantize, dots, panel};
  return table;
}

}  // namespace qkv

// The engine's products by quantised weights are formal/'s, bit for bit.
#include "formal/quantized.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "qkv/kernels/gemm.h"
#include "qkv/quant/block_integers.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

std::vector<formal::WeightBlock> blocks_of(WeightType type, const std::byte* row, int64_t k) {
  const BlockLayout& layout = layout_of(type);
  std::vector<formal::WeightBlock> out;
  for (int64_t b = 0; b < k / layout.elements; ++b) {
    const BlockIntegers n = block_integers(type, row + b * layout.bytes);
    formal::WeightBlock block{n.d, n.m, {n.w, n.w + layout.elements}, {}};
    if (has_minima(type)) block.u.assign(n.u, n.u + layout.elements / kMinimumGroup);
    out.push_back(std::move(block));
  }
  return out;
}

TEST(Quantized, ProductsAgainstFormal) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (int t = static_cast<int>(WeightType::q4_0); t < kWeightTypes; ++t) {
    const auto type = static_cast<WeightType>(t);
    const int64_t block = layout_of(type).elements, k = 3 * block, n = 20;
    std::vector<float> weights(n * k);
    for (float& w : weights) w = normal(random);
    std::vector<std::byte> rows(n * k / block * layout_of(type).bytes);
    const int64_t row_bytes = static_cast<int64_t>(rows.size()) / n;
    for (int64_t j = 0; j < n; ++j)
      quantize_row(type, k, weights.data() + j * k, nullptr, rows.data() + j * row_bytes);
    for (const int64_t m : {1, 2, 9}) {
      std::vector<float> a(m * k), got(m * n);
      for (float& x : a) x = normal(random);
      matrix_product({.m = m,
                      .n = n,
                      .k = k,
                      .a = dense(a.data(), DType::f32, k),
                      .b = {rows.data(), type, k, true},
                      .c = got.data(),
                      .c_stride = n});
      for (int64_t r = 0; r < m; ++r) {
        std::vector<formal::ActivationBlock> activations;
        for (int64_t b = 0; b < k; b += block)
          activations.push_back(formal::Quantize({a.data() + r * k + b, a.data() + r * k + b + block}));
        for (int64_t j = 0; j < n; ++j)
          ASSERT_EQ(formal::QuantizedDot(blocks_of(type, rows.data() + j * row_bytes, k), activations),
                    got[r * n + j])
              << name_of(type) << ", row " << r << ", column " << j;
      }
    }
  }
}

}  // namespace
}  // namespace qkv

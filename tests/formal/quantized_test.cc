// The engine's products by quantised weights are formal/'s, bit for bit.
#include "formal/quantized.h"

#include <adolc/adolc.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "formal/gradient.h"
#include "qkv/autograd/graph.h"
#include "qkv/kernels/gemm.h"
#include "qkv/ops/cross_entropy.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/low_rank.h"
#include "qkv/quant/block_integers.h"
#include "qkv/quant/quantize.h"

namespace qkv::quantized_test {
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

// How far the rounding of activations to 8 bits takes a product from that by the same numbers without it, for
// normal activations: docs/guides/quantize.md has the figures.
TEST(Quantized, DeviationFromTheProductWithoutRounding) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int t = static_cast<int>(WeightType::q4_0); t < kWeightTypes; ++t) {
    const auto type = static_cast<WeightType>(t);
    const BlockLayout& layout = layout_of(type);
    const int64_t k = 2048, n = 64;
    std::vector<float> row(k), a(k);
    for (float& x : a) x = normal(random);
    std::vector<formal::ActivationBlock> activations;
    for (int64_t b = 0; b < k; b += layout.elements)
      activations.push_back(formal::Quantize({a.data() + b, a.data() + b + layout.elements}));
    double squares = 0, differences = 0;
    std::vector<std::byte> bytes(k / layout.elements * layout.bytes);
    for (int64_t j = 0; j < n; ++j) {
      for (float& x : row) x = normal(random);
      quantize_row(type, k, row.data(), nullptr, bytes.data());
      const std::vector<formal::WeightBlock> blocks = blocks_of(type, bytes.data(), k);
      const formal::Vector<double> w = formal::Decoded(blocks);
      double whole = 0;
      for (int64_t i = 0; i < k; ++i) whole += w[i] * double{a[i]};
      squares += whole * whole;
      differences += std::pow(double{formal::QuantizedDot(blocks, activations)} - whole, 2);
    }
    const double deviation = std::sqrt(differences / squares);
    EXPECT_GT(deviation, 0.004) << name_of(type);
    EXPECT_LT(deviation, 0.008) << name_of(type);
  }
}

// A block's numbers in each matrix of a small network: rows of `out`, each of one block.
struct Matrices {
  WeightType type;
  QuantizedTensor engine;
  std::vector<std::vector<formal::WeightBlock>> formal;

  Matrices(WeightType type, int64_t out, std::mt19937& random)
      : type(type), engine(QuantizedTensor::empty({out, layout_of(type).elements}, type)) {
    const int64_t width = layout_of(type).elements;
    std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(width)));
    std::vector<float> row(width);
    for (int64_t r = 0; r < out; ++r) {
      for (float& w : row) w = normal(random);
      std::byte* at =
          engine.mutable_blocks().subspan(r * layout_of(type).bytes, layout_of(type).bytes).data();
      quantize_row(type, width, row.data(), nullptr, at);
      formal.push_back(blocks_of(type, at, width));
    }
  }
};

// The loss of y = W_u g, g = silu(h), h = (W + scale B A) x for rows x, and its gradient by x, A and B.
struct LossOfNetwork {
  double loss = 0;
  std::vector<double> x, a, b;
};

constexpr int64_t kRows = 3, kRank = 2, kVocabulary = 7;
constexpr float kScale = 1.5F;

LossOfNetwork by_formal(const Matrices& w, const Matrices& unembedding, const std::vector<float>& x,
                        const std::vector<float>& a, const std::vector<float>& b,
                        const std::vector<int32_t>& targets) {
  const int64_t width = layout_of(w.type).elements;
  std::vector<double> independent;
  LossOfNetwork out;
  trace_on(1);
  {
    const auto declared = [&](const std::vector<float>& values) {
      std::vector<adouble> active(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        active[i] <<= values[i];
        independent.push_back(values[i]);
      }
      return active;
    };
    const std::vector<adouble> active_x = declared(x), active_a = declared(a), active_b = declared(b);
    adouble loss = 0;
    for (int64_t r = 0; r < kRows; ++r) {
      formal::Vector<adouble> row(width);
      for (int64_t i = 0; i < width; ++i) row[i] = active_x[r * width + i];
      formal::Vector<adouble> h = formal::QuantizedProduct(w.formal, row);
      for (int64_t k = 0; k < kRank; ++k) {
        adouble low = 0;
        for (int64_t i = 0; i < width; ++i) low += active_a[k * width + i] * row[i];
        for (int64_t j = 0; j < width; ++j) h[j] += kScale * active_b[j * kRank + k] * low;
      }
      for (int64_t j = 0; j < width; ++j) h[j] = h[j] / (1 + exp(-h[j]));
      const formal::Vector<adouble> z = formal::QuantizedProduct(unembedding.formal, h);
      adouble sum = 0;
      for (int64_t v = 0; v < kVocabulary; ++v) sum += exp(z[v]);
      loss += (log(sum) - z[targets[r]]) / static_cast<double>(kRows);
    }
    loss >>= out.loss;
  }
  trace_off();
  std::vector<double> all(independent.size());
  ::gradient(1, static_cast<int>(independent.size()), independent.data(), all.data());
  const auto end_x = all.begin() + std::ssize(x), end_a = end_x + std::ssize(a);
  out.x.assign(all.begin(), end_x);
  out.a.assign(end_x, end_a);
  out.b.assign(end_a, all.end());
  return out;
}

LossOfNetwork by_engine(const Matrices& w, const Matrices& unembedding, const std::vector<float>& x,
                        const std::vector<float>& a, const std::vector<float>& b,
                        const std::vector<int32_t>& targets) {
  const int64_t width = layout_of(w.type).elements;
  std::vector<Tensor> gradients;
  std::vector<std::shared_ptr<Leaf>> leaves;
  const auto declared = [&](const std::vector<float>& values, const Shape& shape) {
    Tensor t = Tensor::of(shape, values);
    gradients.push_back(Tensor::zeros(shape, DType::f32));
    leaves.push_back(make_leaf(t, gradients.back()));
    return t;
  };
  const Tensor tx = declared(x, {kRows, width}), ta = declared(a, {kRank, width}),
               tb = declared(b, {width, kRank});
  const Tensor h = add_low_rank(linear(tx, Weight(w.engine), {}), tx, ta, tb, kScale, 0);
  const CrossEntropyResult result = unembed_cross_entropy(
      activation(Activation::silu, h), Weight(unembedding.engine), {}, Indices(targets), 1.0F / kRows);
  backward(result.loss);
  const auto values = [&](size_t i) {
    const auto all = gradients[i].values<float>();
    return std::vector<double>(all.begin(), all.end());
  };
  return {result.total / kRows, values(0), values(1), values(2)};
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, const char* name) {
  double most = 0, difference = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(want[i]));
    difference = std::max(difference, std::abs(got[i] - want[i]));
  }
  EXPECT_GT(most, 0) << name;
  EXPECT_LT(difference, 2e-5 * most) << name;
}

// The engine's gradients beside quantised weights are those of formal/'s convention.
TEST(Quantized, GradientsAgainstFormal) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int t = static_cast<int>(WeightType::q4_0); t < kWeightTypes; ++t) {
    const auto type = static_cast<WeightType>(t);
    SCOPED_TRACE(name_of(type));
    const int64_t width = layout_of(type).elements;
    const Matrices w(type, width, random), unembedding(type, kVocabulary, random);
    const auto drawn = [&](int64_t n, float size) {
      std::vector<float> values(n);
      for (float& v : values) v = size * normal(random);
      return values;
    };
    const auto x = drawn(kRows * width, 1), a = drawn(kRank * width, 0.1F), b = drawn(width * kRank, 0.3F);
    const std::vector<int32_t> targets = {2, 0, 6};
    const LossOfNetwork want = by_formal(w, unembedding, x, a, b, targets),
                        got = by_engine(w, unembedding, x, a, b, targets);
    EXPECT_NEAR(got.loss, want.loss, 1e-5);
    expect_near(got.x, want.x, "x");
    expect_near(got.a, want.a, "A");
    expect_near(got.b, want.b, "B");
  }
}

}  // namespace
}  // namespace qkv::quantized_test

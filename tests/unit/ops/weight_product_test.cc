// Ops whose weights are quantised, or stacks of types: against the same ops with the decoded numbers.
// Covers: qkv/ops/dequantize.cc
#include "qkv/ops/weight_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/base/rng.h"
#include "qkv/kernels/kernels.h"
#include "qkv/ops/cross_entropy.h"
#include "qkv/ops/dequantize.h"
#include "qkv/ops/embedding.h"
#include "qkv/ops/experts.h"
#include "qkv/ops/linear.h"
#include "qkv/quant/quantize.h"

namespace qkv::weight_product_test {
namespace {

Tensor normal(Shape shape, uint32_t site) {
  const RandomStream stream{.seed = 1, .step = 0, .site = site};
  Tensor t = Tensor::empty(shape, DType::f32);
  int64_t i = 0;
  for (float& x : t.mutable_values<float>()) x = static_cast<float>(stream.normal(i++));
  return t;
}

QuantizedTensor quantized(const Tensor& x, WeightType type) {
  QuantizedTensor out = QuantizedTensor::empty(x.shape(), type);
  const auto blocks = out.mutable_blocks();
  for (int64_t r = 0; r < x.rows(); ++r)
    quantize_row(type, x.width(), x.row<float>(r).data(), nullptr,
                 blocks.subspan(r * out.row_bytes(), out.row_bytes()).data());
  return out;
}

Weight mixed() {
  return Weight::stack({quantized(normal({24, 256}, 1), WeightType::q4_k), normal({10, 256}, 2),
                        quantized(normal({30, 256}, 3), WeightType::q6_k)});
}

void expect_near(const Tensor& got, const Tensor& want, double bound) {
  ASSERT_EQ(got.shape(), want.shape());
  const auto a = got.values<float>(), b = want.values<float>();
  for (int64_t i = 0; i < got.count(); ++i) ASSERT_NEAR(a[i], b[i], bound) << i;
}

// Rounding activations errs by at most half a step of 1/127 of the largest, here below 4: 0.016 a number,
// whose errors add up like a random walk.
constexpr double kBound = 0.016 * 16 * 4;

TEST(QuantizedWeights, LinearAndItsGradient) {
  const Weight w = mixed();
  const Tensor dense = dequantized(w, DType::f32), bias = normal({64}, 5);
  Tensor x = normal({7, 256}, 4), dx = Tensor::zeros({7, 256}, DType::f32),
         want_dx = Tensor::zeros({7, 256}, DType::f32);
  const auto run = [&](const Weight& weight, Tensor& gradient) {
    Tensor input = x.detach();
    make_leaf(input, gradient);
    const Tensor y = linear(input, weight, bias);
    std::vector<int32_t> targets = {0, 9, 18, 27, 36, 45, 54};
    backward(unembed_cross_entropy(y, normal({64, 64}, 6), {}, std::move(targets), 1).loss);
    return y.detach();
  };
  const Tensor got = run(w, dx), want = run(dense, want_dx);
  expect_near(got, want, kBound);
  // Rows of f32 are not rounded at all.
  for (int64_t r = 0; r < 7; ++r)
    for (int64_t c = 24; c < 34; ++c) ASSERT_NEAR(got.row<float>(r)[c], want.row<float>(r)[c], 1e-4);
  // The gradient is the decoded weight's; what it starts from differs by the rounding.
  double difference = 0, size = 0;
  for (int64_t i = 0; i < dx.count(); ++i) {
    difference += std::abs(dx.values<float>()[i] - want_dx.values<float>()[i]);
    size += std::abs(want_dx.values<float>()[i]);
  }
  EXPECT_GT(size, 0);
  EXPECT_LT(difference, 0.1 * size);
}

TEST(QuantizedWeights, EmbeddingAndUnembedding) {
  const Weight table = mixed();
  const Tensor dense = dequantized(table, DType::f32);
  const Indices ids({0, 23, 24, 33, 34, 63});
  const Tensor rows = embedding(ids, table, "token id", DType::f32);
  expect_near(rows, embedding(ids, dense, "token id"), 0);
  EXPECT_EQ(embedding(ids, table, "token id", DType::bf16).dtype(), DType::bf16);
  const Tensor x = normal({6, 256}, 7);
  const auto got = unembed_cross_entropy(x, table, {}, ids, 1),
             want = unembed_cross_entropy(x, dense, {}, ids, 1);
  EXPECT_NEAR(got.total, want.total, kBound * 6);
}

TEST(QuantizedWeights, Experts) {
  const Weight w = mixed();  // four experts of 16 rows: types change within them
  const Tensor x = normal({9, 256}, 8);
  const std::vector<int32_t> offsets = {0, 2, 2, 5, 9};
  expect_near(expert_linear(x, w, {}, offsets), expert_linear(x, dequantized(w, DType::f32), {}, offsets),
              kBound);
}

TEST(QuantizedWeights, NarrowWeightsTakeF32Activations) {
  const Tensor x = normal({11, 256}, 9), w = normal({40, 256}, 10);
  const Tensor narrow = dequantized(w, DType::bf16);
  expect_near(linear(x, narrow, {}), linear(x, dequantized(narrow, DType::f32), {}), 1e-3);
}

Tensor in_type(const Tensor& x, DType type) {
  if (type == DType::f32) return x;
  Tensor out = Tensor::empty(x.shape(), type);
  kernels().bf16.from_f32(x.count(), x.data<float>(), out.mutable_values<BFloat16>().data());
  return out;
}

// In inference a row of f32 or bf16 has the bits that it has alone, whatever the number of rows and threads.
TEST(WeightProduct, GivesARowItsBitsInAnyCompany) {
  const NoGrad guard;
  const int threads = num_threads();
  for (const DType type : {DType::f32, DType::bf16}) {
    if (type == DType::bf16 && bf16_is_fast()) continue;
    for (const auto& [n, k] :
         {std::pair<int64_t, int64_t>{77, 64}, {77, 300}, {77, 1100}, {8, 40}, {40, 8}}) {
      const Tensor x = in_type(normal({140, k}, 1), type), w = in_type(normal({n, k}, 2), type),
                   bias = normal({n}, 3);
      const Tensor all = linear(x, w, bias);
      const auto row_of = [&](const Tensor& y, int64_t r) {
        const auto* bytes = reinterpret_cast<const char*>(y.value_bytes().data());
        const size_t row = y.value_bytes().size() / y.rows();
        return std::string(bytes + r * row, row);
      };
      for (const auto& [first, end] : {std::pair<int64_t, int64_t>{0, 1}, {5, 7}, {7, 16}, {90, 140}}) {
        const Tensor some = linear(x.slice_rows(first, end), w, bias);
        for (int64_t r = first; r < end; ++r)
          ASSERT_EQ(row_of(some, r - first), row_of(all, r)) << name_of(type) << ", k " << k << ", row " << r;
      }
      for (const int team : {1, 2, 3}) {
        set_num_threads(team);
        const Tensor again = linear(x, w, bias);
        for (int64_t r = 0; r < 140; ++r) ASSERT_EQ(row_of(again, r), row_of(all, r)) << team << " threads";
      }
      set_num_threads(threads);
    }
  }
}

TEST(WeightProduct, TakesNoRows) {
  const NoGrad guard;
  EXPECT_EQ(linear(Tensor::empty({0, 64}, DType::f32), normal({77, 64}, 2), {}).shape(), Shape({0, 77}));
}

}  // namespace
}  // namespace qkv::weight_product_test

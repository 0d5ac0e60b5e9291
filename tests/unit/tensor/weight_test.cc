// Covers: qkv/tensor/quantized.cc
#include "qkv/tensor/weight.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/expect_error.h"

namespace qkv::weight_test {
namespace {

using testing::expect_error;

// Rows of q8_0 whose first bytes count up from `first`.
QuantizedTensor blocks(Shape shape, int first) {
  QuantizedTensor t = QuantizedTensor::empty(shape, WeightType::q8_0);
  const auto bytes = t.mutable_blocks();
  for (int64_t r = 0; r < t.rows(); ++r) bytes[r * t.row_bytes()] = static_cast<std::byte>(first + r);
  return t;
}

int first_byte(const MatrixView& view, int64_t row) {
  return static_cast<int>(*static_cast<const std::byte*>(view.from(row, 0).data));
}

TEST(QuantizedTensor, KnowsItsRows) {
  const QuantizedTensor t = blocks({2, 3, 64}, 0);
  EXPECT_EQ(t.rows(), 6);
  EXPECT_EQ(t.row_bytes(), 68);
  EXPECT_EQ(t.bytes(), 6U * 68);
  EXPECT_EQ(static_cast<int>(t.slice_rows(1, 2).blocks()[0]), 3);
  EXPECT_EQ(t.reshape({6, 64}).slice_rows(4, 6).shape(), Shape({2, 64}));
  expect_error([&] { t.reshape({3, 128}); }, {"[3, 128]"});
  expect_error([&] { t.slice_rows(1, 3); }, {"[1, 3)"});
  expect_error([] { QuantizedTensor::empty({2, 48}, WeightType::q8_0); }, {"[2, 48]", "32", "q8_0"});
  expect_error([] { QuantizedTensor::empty({2, 32}, WeightType::f16); }, {"f16", "no blocks"});
  QuantizedTensor borrowed = QuantizedTensor::borrow({1, 64}, WeightType::q8_0, t.raw(), nullptr);
  EXPECT_EQ(borrowed.blocks().size(), 68U);
}

TEST(Weight, StacksRowsOfSeveralTypes) {
  const Weight w =
      Weight::stack({blocks({3, 64}, 10), Tensor::zeros({2, 64}, DType::f32), blocks({4, 64}, 20)});
  EXPECT_EQ(w.shape(), Shape({9, 64}));
  EXPECT_TRUE(w.is_packed() && !w.is_quantized() && !w.dense().defined());
  EXPECT_EQ(w.bytes(), 7U * 68 + 2 * 64 * 4);
  const auto runs = w.runs();
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[1].view.type, WeightType::f32);
  EXPECT_EQ(runs[2].first, 5);
  EXPECT_EQ(first_byte(runs[2].view, 3), 23);
  const Weight middle = w.slice_rows(2, 7);
  ASSERT_EQ(middle.runs().size(), 3U);
  EXPECT_EQ(first_byte(middle.runs()[0].view, 0), 12);
  EXPECT_EQ(middle.runs()[2].count, 2);
  EXPECT_TRUE(w.slice_rows(5, 9).is_quantized());
  EXPECT_EQ(w.slice_rows(3, 5).runs().size(), 1U);
  expect_error([&] { w.slice_rows(2, 10); }, {"[2, 10)"});
  expect_error([] { Weight::stack({blocks({3, 64}, 0), blocks({3, 32}, 0)}); }, {"[3, 64]", "[3, 32]"});
  expect_error([] { Weight(Tensor::zeros({2, 2}, DType::i32)).type(); }, {"i32"});
  expect_error([] { Weight().type(); }, {"undefined"});
}

TEST(Weight, OfOneDenseTensorIsThatTensor) {
  const Tensor x = Tensor::zeros({4, 6}, DType::bf16);
  const Weight w = x;
  EXPECT_TRUE(w.defined() && !w.is_packed() && w.dense().same_storage(x));
  EXPECT_EQ(w.type(), WeightType::bf16);
  EXPECT_EQ(w.slice_rows(1, 3).shape(), Shape({2, 6}));
  EXPECT_EQ(w.runs().front().view.row_bytes(), 12);
}

}  // namespace
}  // namespace qkv::weight_test

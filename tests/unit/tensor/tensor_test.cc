// Shapes, tensors as views of storage, and the memory pool.
// Covers: qkv/tensor/storage.cc, qkv/tensor/dtype.cc, qkv/tensor/shape.cc, qkv/tensor/span.cc
#include "qkv/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

namespace qkv::tensor_test {
namespace {

TEST(Shape, CountsAndCompares) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s.count(), 24);
  EXPECT_EQ(s[0], 2);
  EXPECT_EQ(s[-1], 4);
  EXPECT_EQ(s.text(), "[2, 3, 4]");
  EXPECT_EQ(s, (Shape{2, 3, 4}));
  EXPECT_NE(s, (Shape{2, 3, 4, 1}));
  EXPECT_NE(s, (Shape{2, 4, 3}));
  EXPECT_EQ(Shape{}.count(), 1);
  EXPECT_EQ((Shape{3, 0, 2}).count(), 0);
}

TEST(Shape, RefusesWhatDoesNotFit) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6}), Error);
  EXPECT_THROW((Shape{2, -1}), Error);
  const int64_t big = int64_t{1} << 31;
  EXPECT_THROW((Shape{big, big}), Error);  // 2^62 elements: their bytes would overflow
  EXPECT_THROW((Shape{big, big, big, big}), Error);
  EXPECT_THROW((Shape{0, big, big}), Error);  // a view may drop the 0
  EXPECT_NO_THROW((Shape{big, big / 16}));
  EXPECT_THROW((Shape{std::numeric_limits<int64_t>::max()}), Error);
}

std::vector<float> counting(int64_t n) {
  std::vector<float> x(n);
  std::iota(x.begin(), x.end(), 0.0f);
  return x;
}

TEST(Tensor, HoldsValues) {
  const Tensor t = Tensor::of({2, 3}, counting(6));
  EXPECT_EQ(t.dtype(), DType::f32);
  EXPECT_EQ(t.bytes(), 24u);
  EXPECT_EQ(t.width(), 3);
  EXPECT_EQ(t.rows(), 2);
  EXPECT_EQ(t.values<float>()[5], 5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 64, 0u);
  EXPECT_THROW(Tensor::of({2, 3}, counting(5)), Error);
  const Tensor zeros = Tensor::zeros({100}, DType::f32);
  for (const float x : zeros.values<float>()) EXPECT_EQ(x, 0);
  EXPECT_EQ(Tensor::of({1}, counting(1)).item(), 0);
  EXPECT_THROW(t.item(), Error);
  EXPECT_THROW(Tensor::zeros({1}, DType::i32).item(), Error);
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, OfNothing) {
  const Tensor t = Tensor::of({0, 3}, counting(0));
  EXPECT_TRUE(t.defined());
  EXPECT_EQ(t.rows(), 0);
  EXPECT_EQ(t.slice_rows(0, 0).count(), 0);
  EXPECT_EQ(t.clone().count(), 0);
  EXPECT_EQ(t.reshape({3, 0, 7}).rows(), 0);
}

TEST(Tensor, ViewsShareStorage) {
  Tensor t = Tensor::of({4, 3}, counting(12));
  const Tensor rows = t.slice_rows(1, 3);
  EXPECT_EQ(rows.shape(), (Shape{2, 3}));
  EXPECT_EQ(rows.values<float>()[0], 3);
  EXPECT_EQ(rows.slice_rows(1, 2).values<float>()[2], 8);  // views of views add up
  EXPECT_EQ(rows.view(1, {2, 2}).values<float>()[3], 7);
  EXPECT_EQ(rows.reshape({6}).values<float>()[5], 8);
  EXPECT_TRUE(rows.same_storage(t));
  EXPECT_FALSE(t.unique());
  t.mutable_data<float>()[3] = 42;
  EXPECT_EQ(rows.values<float>()[0], 42);
  const Tensor copy = rows.clone();
  t.mutable_data<float>()[3] = 43;
  EXPECT_EQ(copy.values<float>()[0], 42);
  EXPECT_FALSE(copy.same_storage(t));
  EXPECT_TRUE(copy.unique());
}

TEST(Tensor, ViewsStayInside) {
  const Tensor t = Tensor::of({4, 3}, counting(12));
  EXPECT_THROW(t.slice_rows(-1, 2), Error);
  EXPECT_THROW(t.slice_rows(2, 1), Error);
  EXPECT_THROW(t.slice_rows(0, 5), Error);
  EXPECT_THROW(Tensor::zeros({}, DType::f32).slice_rows(0, 1), Error);
  EXPECT_THROW(t.view(-1, {2}), Error);
  EXPECT_THROW(t.view(11, {2}), Error);
  EXPECT_THROW(t.slice_rows(3, 4).view(0, {4}), Error);  // inside the storage, not the view
  EXPECT_NO_THROW(t.view(12, {0}));
  EXPECT_THROW(t.reshape({5}), Error);
}

TEST(Tensor, BorrowsMemoryAndKeepsItsOwner) {
  auto owner = std::make_shared<std::vector<float>>(counting(6));
  const std::weak_ptr<std::vector<float>> watch = owner;
  Tensor t = Tensor::borrow({2, 3}, DType::f32, reinterpret_cast<const std::byte*>(owner->data()), owner);
  owner.reset();
  Tensor row = t.slice_rows(1, 2);
  t = Tensor();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(row.values<float>()[0], 3);
  EXPECT_FALSE(row.unique());  // must not be written in place
  row = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(Span, ChecksIndicesAndParts) {
  std::vector<int32_t> five = {0, 1, 2, 3, 4};
  const Span<int32_t> s(five.data(), five.size());
  EXPECT_EQ(s[4], 4);
  EXPECT_EQ(s.front(), 0);
  EXPECT_EQ(s.back(), 4);
  EXPECT_THROW(s[5], Error);
  EXPECT_THROW(s[-1], Error);
  EXPECT_THROW(s[std::numeric_limits<int64_t>::min()], Error);
  EXPECT_THROW(s[std::numeric_limits<int64_t>::max()], Error);
  EXPECT_EQ(s.subspan(1, 3)[2], 3);
  EXPECT_THROW(s.subspan(1, 3)[3], Error);  // inside the elements, not the part
  EXPECT_THROW(s.subspan(1, 5), Error);
  EXPECT_THROW(s.subspan(-1, 2), Error);
  EXPECT_THROW(s.subspan(2, -1), Error);
  EXPECT_THROW(s.subspan(6), Error);
  EXPECT_THROW(s.subspan(2, std::numeric_limits<int64_t>::max()), Error);
  EXPECT_TRUE(s.subspan(5).empty());
  EXPECT_EQ(s.first(2).back(), 1);
  EXPECT_EQ(s.last(2).front(), 3);
  EXPECT_THROW(s.first(6), Error);
  EXPECT_THROW(s.last(6), Error);
  EXPECT_EQ(s.row(1, 2)[1], 3);
  EXPECT_THROW(s.row(2, 2), Error);
  EXPECT_THROW(s.row(int64_t{1} << 62, 4), Error);
  s[4] = 9;
  EXPECT_EQ(five[4], 9);
  s.subspan(3).copy(s.first(2));
  EXPECT_EQ(five, (std::vector<int32_t>{0, 1, 2, 0, 1}));
  EXPECT_THROW(s.first(2).copy(s.first(3)), Error);
  const std::span<const int32_t> standard = s;  // converts to std::span
  EXPECT_EQ(standard.size(), 5u);
  EXPECT_EQ(std::accumulate(s.begin(), s.end(), 0), 4);
}

TEST(Span, OfNothing) {
  const Span<const float> nothing;
  EXPECT_TRUE(nothing.empty());
  EXPECT_THROW(nothing[0], Error);
  EXPECT_THROW(nothing.front(), Error);
  EXPECT_THROW(nothing.back(), Error);
  EXPECT_THROW(nothing.last(1), Error);
  EXPECT_TRUE(nothing.first(0).empty());
  EXPECT_EQ(nothing.begin(), nothing.end());
}

TEST(Access, ElementsRowsAndParts) {
  Tensor t = Tensor::of({2, 3, 4}, counting(24));
  EXPECT_EQ(t.values<float>()[23], 23);
  EXPECT_THROW(t.values<float>()[24], Error);
  EXPECT_EQ(t.row<float>(5)[3], 23);  // one of 2 x 3 rows
  EXPECT_THROW(t.row<float>(6), Error);
  EXPECT_THROW(t.row<float>(-1), Error);
  EXPECT_THROW(t.row<float>(5)[4], Error);
  EXPECT_EQ(t.part<float>().size(), 24u);
  EXPECT_EQ(t.part<float>(1).size(), 12u);
  EXPECT_EQ(t.part<float>(1)[0], 12);
  EXPECT_EQ(t.part<float>(1, 2)[3], 23);
  EXPECT_EQ(t.part<float>(1, 2, 3).front(), 23);
  EXPECT_THROW(t.part<float>(2), Error);
  EXPECT_THROW(t.part<float>(0, 3), Error);  // inside the storage, not the axis
  EXPECT_THROW(t.part<float>(0, 0, 4), Error);
  EXPECT_THROW(t.part<float>(0, -1), Error);
  EXPECT_THROW(t.part<float>(0, 0, 0, 0), Error);
  t.mutable_values<float>()[0] = 100;
  t.mutable_row<float>(1)[0] = 101;
  t.mutable_part<float>(1, 1)[2] = 102;
  EXPECT_EQ(t.values<float>()[0], 100);
  EXPECT_EQ(t.values<float>()[4], 101);
  EXPECT_EQ(t.values<float>()[18], 102);
  EXPECT_THROW(t.mutable_row<float>(6), Error);
  EXPECT_THROW(t.mutable_part<float>(0, 3), Error);
  EXPECT_EQ(t.slice_rows(1, 2).row<float>(0)[1], 13);  // rows count within the view
  EXPECT_THROW(t.slice_rows(0, 1).row<float>(3), Error);
}

TEST(Access, RefusesAnotherType) {
  Tensor t = Tensor::zeros({2, 2}, DType::f32);
  EXPECT_THROW(t.values<int32_t>(), Error);
  EXPECT_THROW(t.values<BFloat16>(), Error);
  EXPECT_THROW(t.values<double>(), Error);
  EXPECT_THROW(t.mutable_values<int64_t>(), Error);
  EXPECT_THROW(t.row<uint8_t>(0), Error);
  EXPECT_THROW(t.mutable_row<Float16>(0), Error);
  EXPECT_THROW(t.part<int32_t>(0, 0), Error);
  EXPECT_THROW(t.mutable_part<int32_t>(0, 0), Error);
  EXPECT_NO_THROW(Tensor::zeros({1}, DType::f16).values<Float16>());
  EXPECT_NO_THROW(Tensor::zeros({1}, DType::u8).values<uint8_t>());
}

TEST(Access, OfNothing) {
  Tensor empty = Tensor::zeros({0, 3}, DType::f32), narrow = Tensor::zeros({3, 0}, DType::f32);
  EXPECT_TRUE(empty.values<float>().empty());
  EXPECT_THROW(empty.values<float>()[0], Error);
  EXPECT_THROW(empty.row<float>(0), Error);
  EXPECT_THROW(empty.part<float>(0), Error);
  EXPECT_TRUE(empty.value_bytes().empty());
  EXPECT_NO_THROW(empty.set_zero());
  EXPECT_NO_THROW(empty.copy(narrow));
  EXPECT_TRUE(narrow.part<float>(2).empty());
  EXPECT_THROW(narrow.part<float>(3), Error);
  Tensor undefined;
  EXPECT_THROW(undefined.values<float>(), Error);
  EXPECT_THROW(undefined.mutable_values<float>(), Error);
  EXPECT_THROW(undefined.row<float>(0), Error);
  EXPECT_THROW(undefined.part<float>(), Error);
  EXPECT_THROW(undefined.value_bytes(), Error);
  EXPECT_THROW(undefined.copy(empty), Error);
  EXPECT_THROW(empty.copy(undefined), Error);
  EXPECT_THROW(undefined.set_zero(), Error);
}

TEST(Access, BorrowedMemoryIsOnlyRead) {
  const auto owner = std::make_shared<std::vector<float>>(counting(6));
  Tensor t = Tensor::borrow({2, 3}, DType::f32, reinterpret_cast<const std::byte*>(owner->data()), owner);
  EXPECT_TRUE(t.borrowed());
  EXPECT_EQ(t.row<float>(1)[2], 5);
  EXPECT_THROW(t.mutable_values<float>(), Error);
  EXPECT_THROW(t.mutable_row<float>(0), Error);
  EXPECT_THROW(t.mutable_part<float>(0), Error);
  EXPECT_THROW(t.mutable_value_bytes(), Error);
  EXPECT_THROW(t.set_zero(), Error);
  EXPECT_THROW(t.copy(t.clone()), Error);
  EXPECT_FALSE(t.clone().borrowed());
  EXPECT_NO_THROW(t.clone().set_zero());
}

TEST(Access, CopiesValuesAndRows) {
  const Tensor from = Tensor::of({3, 4}, counting(12));
  Tensor to = Tensor::zeros({4, 3}, DType::f32);
  to.copy(from);
  EXPECT_EQ(to.values<float>()[11], 11);
  EXPECT_EQ(to.value_bytes().size(), 48u);
  to.set_zero();
  EXPECT_EQ(to.values<float>()[11], 0);
  EXPECT_THROW(to.copy(Tensor::zeros({11}, DType::f32)), Error);
  EXPECT_THROW(to.copy(Tensor::zeros({4, 3}, DType::i32)), Error);
  copy_rows(from, 1, 1, 2, to, 2);  // three columns of two rows
  EXPECT_EQ(to.row<float>(1)[2], 0);
  EXPECT_EQ(to.row<float>(2)[0], 5);
  EXPECT_EQ(to.row<float>(3)[2], 11);
  EXPECT_THROW(copy_rows(from, 1, 2, 1, to, 0), Error);   // columns 2 to 4 of 4
  EXPECT_THROW(copy_rows(from, 1, -1, 1, to, 0), Error);  // from the row before
  EXPECT_THROW(copy_rows(from, 2, 0, 2, to, 0), Error);
  EXPECT_THROW(copy_rows(from, -1, 0, 1, to, 0), Error);
  EXPECT_THROW(copy_rows(from, 0, 0, 2, to, 3), Error);
  EXPECT_THROW(copy_rows(from, 0, 0, 1, to, -1), Error);
  EXPECT_THROW(copy_rows(from, 0, 0, -1, to, 0), Error);
  Tensor other = Tensor::zeros({4, 3}, DType::i32);
  EXPECT_THROW(copy_rows(from, 0, 0, 1, other, 0), Error);
  Tensor whole = Tensor::zeros({3, 4}, DType::f32);
  copy_rows(from, 0, 0, 3, whole, 0);
  EXPECT_EQ(whole.values<float>()[11], 11);
  Tensor narrow = Tensor::zeros({3, 0}, DType::f32);
  EXPECT_NO_THROW(copy_rows(Tensor::zeros({3, 0}, DType::f32), 1, 0, 2, narrow, 0));
}

TEST(Access, PlacesOfViews) {
  const Tensor whole = Tensor::of({3, 4}, counting(12)), part = whole.slice_rows(1, 3);
  EXPECT_EQ(part.place_in(whole), 4);
  EXPECT_EQ(part.slice_rows(1, 2).place_in(part), 4);
  EXPECT_EQ(whole.place_in(whole), 0);
  EXPECT_THROW(whole.place_in(part), Error);
  EXPECT_THROW(whole.clone().place_in(whole), Error);
}

TEST(F16, Expands) {
  EXPECT_EQ(float_from_f16(0x3C00), 1.0f);
  EXPECT_EQ(float_from_f16(0xC000), -2.0f);
  EXPECT_EQ(float_from_f16(0x7BFF), 65504.0f);
  EXPECT_EQ(float_from_f16(0x0001), 0x1p-24f);
  EXPECT_EQ(float_from_f16(0x83FF), -1023 * 0x1p-24f);
  EXPECT_EQ(float_from_f16(0x0400), 0x1p-14f);
  EXPECT_TRUE(std::signbit(float_from_f16(0x8000)));
  EXPECT_EQ(float_from_f16(0xFC00), -HUGE_VALF);
  EXPECT_TRUE(std::isnan(float_from_f16(0x7E01)));
}

TEST(F16, HoldsWhatItExpandsToAndNothingElse) {
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const float x = float_from_f16(static_cast<uint16_t>(bits));
    ASSERT_EQ(f16_from_float(x), static_cast<uint16_t>(bits)) << x;
    if (!std::isfinite(x)) continue;
    ASSERT_FALSE(f16_from_float(std::nextafter(x, 1e30F)).has_value()) << x;
    ASSERT_FALSE(f16_from_float(std::nextafter(x, -1e30F)).has_value()) << x;
  }
  EXPECT_FALSE(f16_from_float(65536).has_value());
  EXPECT_FALSE(f16_from_float(1e30F).has_value());
}

class PoolOfFreedBlocks : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__)
    GTEST_SKIP() << "nothing is kept under AddressSanitizer";
#endif
  }
};

TEST_F(PoolOfFreedBlocks, ReusesFreedBlocks) {
  trim_memory_pool();
  const MemoryUse before = memory_use();
  const void* first = nullptr;
  {
    const Tensor t = Tensor::empty({1000}, DType::f32);
    first = t.raw();
    EXPECT_GE(memory_use().in_use, before.in_use + 4000);
    EXPECT_LE(memory_use().in_use, before.in_use + 4500);  // wastes at most an eighth
  }
  EXPECT_EQ(memory_use().in_use, before.in_use);
  EXPECT_GE(memory_use().pooled, 4000u);
  const Tensor again = Tensor::empty({999}, DType::f32);  // has the same size class
  EXPECT_EQ(again.raw(), first);
  EXPECT_EQ(memory_use().pooled, 0u);
  const Tensor other = Tensor::empty({999}, DType::f32);
  EXPECT_NE(other.raw(), first);
}

// Sizes shrink like a batch that finished texts leave.
TEST_F(PoolOfFreedBlocks, KeepsLittleMoreThanWasInUse) {
  trim_memory_pool();
  reset_peak_memory();
  const auto most = [] { return memory_use().peak * 5 / 4 + (64 << 20); };
  size_t all = 0;
  for (int64_t size = int64_t{128} << 20; size > 1 << 20; size = size * 3 / 4) {
    Tensor::empty({size}, DType::u8);
    all += size;
    EXPECT_LE(memory_use().in_use + memory_use().pooled, most()) << size;
  }
  EXPECT_GT(all, most());  // the pool would otherwise keep this much
  const void* data = nullptr;
  {
    const Tensor t = Tensor::empty({10 << 20}, DType::u8);
    data = t.raw();
  }
  EXPECT_EQ(Tensor::empty({9 << 20}, DType::u8).raw(), data);  // large enough, and not too large
  EXPECT_NE(Tensor::empty({6 << 20}, DType::u8).raw(), data);
  trim_memory_pool();
}

TEST_F(PoolOfFreedBlocks, RemembersThePeakAndTrims) {
  reset_peak_memory();
  const size_t before = memory_use().peak;
  Tensor::empty({3 << 20}, DType::u8);  // more than a huge page
  EXPECT_GE(memory_use().peak, before + (3 << 20));
  EXPECT_GE(memory_use().pooled, size_t{3} << 20);
  trim_memory_pool();
  EXPECT_EQ(memory_use().pooled, 0u);
  reset_peak_memory();
  EXPECT_EQ(memory_use().peak, memory_use().in_use);
}

TEST(Pool, SurvivesAnImpossibleRequest) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer's allocator stops the program instead";
#endif
  const MemoryUse before = memory_use();
  for (int i = 0; i < 2; ++i) EXPECT_THROW(Tensor::empty({int64_t{1} << 56}, DType::f32), Error);
  EXPECT_EQ(memory_use().in_use, before.in_use);
  EXPECT_EQ(memory_use().pooled, before.pooled);
}

TEST(Pool, IsSharedByThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i] {
      for (int j = 0; j < 1000; ++j) {
        Tensor t = Tensor::empty({64 + j % 5 * 64}, DType::i32);
        t.mutable_data<int32_t>()[0] = i;
        EXPECT_EQ(t.values<int32_t>()[0], i);
      }
    });
  for (auto& t : threads) t.join();
}

TEST(Storage, RefusesMoreThanTheMachineHas) {
  EXPECT_THROW(Tensor::empty({int64_t{1} << 44}, DType::f32), Error);
}

}  // namespace
}  // namespace qkv::tensor_test

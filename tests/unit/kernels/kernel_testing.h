// Shared by the kernel tests: buffers between sentinels, random values, comparison within a derived bound.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "qkv/base/rng.h"
#include "qkv/kernels/kernels.h"

namespace qkv {

// Distance between 1 and the next f32. A correctly rounded operation errs by at most half of it, relatively;
// a sum of n terms by at most n times that of the sum of magnitudes, whatever the order.
inline constexpr double kEps = 0x1p-23;

// Difference of two implementations from storing a result as T: one unit in the last place, since nearly
// equal values can round to neighbours.
template <typename T>
inline constexpr double kStoreEps = kEps;
template <>
inline constexpr double kStoreEps<BFloat16> = 0x1p-7;

// n elements, `offset` elements past a 64-byte boundary, between sentinels that no kernel may touch.
template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t n, int64_t offset = 0)
      : bytes_((n + offset) * sizeof(T) + 2 * kGuard + 64, kSentinel) {
    const auto base = reinterpret_cast<uintptr_t>(bytes_.data());
    const uintptr_t aligned = (base + kGuard + 63) / 64 * 64;
    start_ = aligned - base + offset * sizeof(T);
    size_ = n;
  }
  static Buffer normal(int64_t n, uint32_t site, double amplitude = 1, int64_t offset = 0) {
    Buffer b(n, offset);
    const RandomStream stream{.seed = 42, .step = 0, .site = site};
    for (int64_t i = 0; i < n; ++i) b[i] = T(static_cast<float>(amplitude * stream.normal(i)));
    return b;
  }
  static Buffer constant(int64_t n, float value, int64_t offset = 0) {
    Buffer b(n, offset);
    for (int64_t i = 0; i < n; ++i) b[i] = T(value);
    return b;
  }
  Buffer(const Buffer& other) : Buffer(other.size_, 0) { *this = other; }
  Buffer& operator=(const Buffer& other) {
    if (this == &other) return *this;
    bytes_.assign(other.bytes_.size(), kSentinel);
    const auto base = reinterpret_cast<uintptr_t>(bytes_.data());
    const auto from = reinterpret_cast<uintptr_t>(other.data());
    start_ = (base + kGuard + 63) / 64 * 64 - base + from % 64;  // as misaligned as the original
    size_ = other.size_;
    if (size_ > 0) std::memcpy(data(), other.data(), size_ * sizeof(T));
    return *this;
  }

  T* data() { return reinterpret_cast<T*>(bytes_.data() + start_); }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + start_); }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }
  double at(int64_t i) const { return static_cast<double>(static_cast<float>(data()[i])); }
  int64_t size() const { return size_; }

  bool guards_intact() const {
    const size_t end = start_ + size_ * sizeof(T);
    for (size_t i = 0; i < bytes_.size(); ++i)
      if ((i < start_ || i >= end) && bytes_[i] != kSentinel) return false;
    return true;
  }

 private:
  static constexpr size_t kGuard = 128;
  static constexpr unsigned char kSentinel = 0xA5;
  std::vector<unsigned char> bytes_;
  size_t start_ = 0;
  int64_t size_ = 0;
};

// |got - want| <= tolerance(i) for every element; equal infinities agree, NaN never does.
template <typename A, typename B, typename F>
void expect_close(const Buffer<A>& got, const Buffer<B>& want, const F& tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  EXPECT_TRUE(got.guards_intact()) << what << ": written outside its bounds";
  int64_t wrong = 0;
  for (int64_t i = 0; i < got.size() && wrong < 3; ++i) {
    const double g = got.at(i), w = want.at(i), bound = tolerance(i);
    if (g == w || std::abs(g - w) <= bound) continue;
    ADD_FAILURE() << what << "[" << i << "] of " << got.size() << ": got " << g << ", want " << w
                  << ", off by " << std::abs(g - w) << ", allowed " << bound;
    ++wrong;
  }
}

template <typename T>
void expect_same_bits(const Buffer<T>& got, const Buffer<T>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  EXPECT_TRUE(got.guards_intact()) << what << ": written outside its bounds";
  int64_t wrong = 0;
  for (int64_t i = 0; i < got.size() && wrong < 3; ++i)
    if (std::memcmp(got.data() + i, want.data() + i, sizeof(T)) != 0) {
      ADD_FAILURE() << what << "[" << i << "] of " << got.size() << ": got " << got.at(i) << ", want "
                    << want.at(i);
      ++wrong;
    }
}

// Sizes near the vector lengths 8 and 16 and their doubles, and some typical rows of models.
inline const std::vector<int64_t> kAwkwardSizes = {1, 2, 7, 8, 9, 15, 16, 17, 19, 31, 32, 33, 35, 100, 768};

inline const DropoutKey kTestKey = DropoutKey::from({.seed = 7, .step = 3, .site = 11});

// A test for each SIMD table this processor runs: the body is given `table`.
template <typename F>
void for_simd_tables(const F& f) {
  for (int i = 1; i < kernel_table_count(); ++i) {
    SCOPED_TRACE(kernel_table(i).name);
    f(kernel_table(i));
  }
}

}  // namespace qkv

// Rows of numbers and digests for the tests of block formats. Whole numbers and exact sums make them, so that
// they are the same everywhere.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qkv::testing {

// FNV-1a of 32 bits.
class Digest {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) value_ = (value_ ^ static_cast<uint32_t>(byte)) * 16777619u;
  }
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 2166136261u;
};

// SplitMix64.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t n) { return bits() % n; }
  // Nearly normal: a sum of twelve even numbers.
  double normal() {
    int64_t sum = 0;
    for (int i = 0; i < 12; ++i) sum += static_cast<int64_t>(bits() >> 40);
    return static_cast<double>(sum - 6 * (int64_t{1} << 24)) * 0x1p-24;
  }

 private:
  uint64_t state_;
};

// Kinds of rows; the last three are beyond what f16 scales or squares in f32 hold.
enum class Kind { normal, zeros, constant, outlier, few_values, large, tiny, overflowing, subnormal };
inline constexpr int kKinds = static_cast<int>(Kind::subnormal) + 1;

inline std::vector<float> test_row(Kind kind, int64_t width, uint64_t seed) {
  Numbers numbers(seed * 100 + static_cast<uint64_t>(kind));
  std::vector<float> row(static_cast<size_t>(width));
  for (float& x : row) {
    const double normal = numbers.normal();
    switch (kind) {
      case Kind::normal:
      case Kind::outlier:
        x = static_cast<float>(normal * 0.03);
        break;
      case Kind::zeros:
        x = 0;
        break;
      case Kind::constant:
        x = 0.7f;
        break;
      case Kind::few_values:
        x = static_cast<float>(static_cast<int>(numbers.below(9)) - 4) * 0.25f;
        break;
      case Kind::large:
        x = static_cast<float>(normal * 30000);
        break;
      case Kind::tiny:
        x = static_cast<float>(normal * 1e-6);
        break;
      case Kind::overflowing:
        x = static_cast<float>(normal * 1e25);
        break;
      case Kind::subnormal:
        x = static_cast<float>(normal * 1e-40);
        break;
    }
  }
  if (kind == Kind::outlier) row[numbers.below(row.size())] = -5;
  return row;
}

// Mean squares of activations; one of eight columns is never met.
inline std::vector<float> test_importance(int64_t width, uint64_t seed) {
  Numbers numbers(seed * 100 + 99);
  std::vector<float> importance(static_cast<size_t>(width));
  for (float& weight : importance) {
    const double normal = numbers.normal();
    weight = numbers.below(8) == 0 ? 0.0f : static_cast<float>(normal * normal);
  }
  return importance;
}

inline constexpr int64_t kWidths[] = {1, 2, 3, 8};  // a digest's rows, in blocks

// Any bytes are blocks.
inline std::vector<std::byte> test_blocks(int64_t bytes, uint64_t seed) {
  Numbers numbers(seed * 100 + 98);
  std::vector<std::byte> blocks(static_cast<size_t>(bytes));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(numbers.below(256));
  return blocks;
}

// Adds the bits of numbers; every NaN counts as the same.
inline void add_numbers(std::span<const float> numbers, Digest* digest) {
  for (const float x : numbers) {
    const uint32_t bits = x != x ? 0x7FC00000 : std::bit_cast<uint32_t>(x);
    digest->add(std::as_bytes(std::span(&bits, 1)));
  }
}

}  // namespace qkv::testing

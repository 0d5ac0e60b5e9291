// The extents of a tensor's axes.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace qkv {

// At most kMaxRank extents.
class Shape {
 public:
  static constexpr int kMaxRank = 5;
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extents_[i < 0 ? i + rank_ : i]; }  // negative: from the end
  int64_t count() const;                                                       // number of elements
  bool operator==(const Shape&) const = default;
  std::string text() const;  // "[2, 3]"

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace qkv

// Messages show a shape as "[2, 3]". The text is made only when it is printed, so that an op's checks cost
// nothing.
template <>
struct fmt::formatter<qkv::Shape> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  format_context::iterator format(const qkv::Shape& shape, format_context& context) const;
};

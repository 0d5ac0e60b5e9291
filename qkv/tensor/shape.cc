#include "qkv/tensor/shape.h"

#include <limits>

#include "qkv/base/error.h"

namespace qkv {

Shape::Shape(std::span<const int64_t> extents) {
  check(extents.size() <= kMaxRank, "shape: at most {} axes, got {}", kMaxRank, extents.size());
  int64_t product = 1;
  for (const int64_t n : extents) {
    check(n >= 0, "shape: extents cannot be negative, got {}", n);
    check(n == 0 || product <= std::numeric_limits<int64_t>::max() / 16 / n, "shape: too many elements");
    product *= n == 0 ? 1 : n;
    extents_[rank_++] = n;
  }
}

int64_t Shape::count() const {
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= extents_[i];
  return n;
}

std::string Shape::text() const {
  std::string s = "[";
  for (int i = 0; i < rank_; ++i) s += (i == 0 ? "" : ", ") + std::to_string(extents_[i]);
  return s + "]";
}

}  // namespace qkv

fmt::format_context::iterator fmt::formatter<qkv::Shape>::format(const qkv::Shape& shape,
                                                                 format_context& context) const {
  return fmt::format_to(context.out(), "{}", shape.text());
}

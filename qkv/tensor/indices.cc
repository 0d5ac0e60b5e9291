#include "qkv/tensor/indices.h"

#include <utility>

#include "qkv/base/error.h"

namespace qkv {

Indices::Indices(std::vector<int32_t> values)
    : values_(std::make_shared<const std::vector<int32_t>>(std::move(values))) {}

Indices::Indices(std::vector<int32_t> values, int64_t width) : Indices(std::move(values)) {
  check(width > 0 && count() % width == 0, "indices: {} values are no rows of {}", count(), width);
  width_ = width;
  rank_ = 2;
}

Indices Indices::zeros(int64_t count) {
  return std::vector<int32_t>(static_cast<size_t>(count));
}

Shape Indices::shape() const {
  return rank_ == 2 ? Shape{rows(), width_} : Shape{count()};
}

Span<const int32_t> Indices::values() const {
  return values_ ? Span<const int32_t>(values_->data(), values_->size()) : Span<const int32_t>();
}

}  // namespace qkv

fmt::format_context::iterator fmt::formatter<qkv::Indices>::format(const qkv::Indices& indices,
                                                                   format_context& context) const {
  return indices.defined() ? fmt::format_to(context.out(), "{}", indices.shape())
                           : fmt::format_to(context.out(), "nothing");
}

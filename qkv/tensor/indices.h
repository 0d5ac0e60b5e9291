// Integers that say which: ids of tokens, positions, rows, targets.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "qkv/tensor/shape.h"
#include "qkv/tensor/span.h"

namespace qkv {

// Numbers in the memory of the host, wherever tensors are computed: code reads them to decide what to do.
// They have no gradient and never change, so that copies share them.
class Indices {
 public:
  Indices() = default;  // undefined
  // [N].
  Indices(std::vector<int32_t> values);  // NOLINT: a list is what it says
  // [N, width], row after row. Throws Error where rows are not whole.
  Indices(std::vector<int32_t> values, int64_t width);
  static Indices zeros(int64_t count);

  bool defined() const { return values_ != nullptr; }
  explicit operator bool() const { return defined(); }
  int64_t rank() const { return rank_; }
  Shape shape() const;
  int64_t count() const { return values_ ? static_cast<int64_t>(values_->size()) : 0; }
  int64_t width() const { return width_; }
  int64_t rows() const { return count() / width_; }

  // All of them, and one: none where undefined. Throw Error for another than there is.
  Span<const int32_t> values() const;
  int32_t operator[](int64_t i) const { return values()[i]; }
  Span<const int32_t> row(int64_t i) const { return values().row(i, width_); }

 private:
  std::shared_ptr<const std::vector<int32_t>> values_;
  int64_t width_ = 1;
  int rank_ = 1;
};

}  // namespace qkv

// A message shows indices as their shape, or as "nothing" where they are not defined.
template <>
struct fmt::formatter<qkv::Indices> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  format_context::iterator format(const qkv::Indices& indices, format_context& context) const;
};

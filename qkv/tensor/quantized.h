// Arrays of numbers in blocks that share scales.
#pragma once

#include <memory>

#include "qkv/base/error.h"
#include "qkv/tensor/shape.h"
#include "qkv/tensor/span.h"
#include "qkv/tensor/storage.h"
#include "qkv/tensor/weight_type.h"

namespace qkv {

// Rows of blocks in row-major order without gaps: a handle that is cheap to copy and shares its storage. The
// last axis is a multiple of a block's elements. Has no gradient, and no element can be addressed alone.
class QuantizedTensor {
 public:
  QuantizedTensor() = default;
  // Uninitialised. Throws Error unless the type is of blocks and whole blocks fill the last axis.
  static QuantizedTensor empty(Shape shape, WeightType type);
  // Read-only blocks in memory that `owner` keeps alive.
  static QuantizedTensor borrow(Shape shape, WeightType type, const std::byte* data,
                                std::shared_ptr<const void> owner);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  WeightType type() const { return type_; }
  int64_t dim(int i) const { return shape_[i]; }
  // The extent of the last axis, how many rows of it there are, and the bytes of one.
  int64_t width() const { return shape_[-1]; }
  int64_t rows() const { return width() == 0 ? 0 : shape_.count() / width(); }
  int64_t row_bytes() const { return width() / layout_of(type_).elements * layout_of(type_).bytes; }
  size_t bytes() const { return static_cast<size_t>(rows() * row_bytes()); }

  // The blocks of all rows. mutable_blocks() throws Error if the memory is borrowed.
  Span<const std::byte> blocks() const;
  Span<std::byte> mutable_blocks();
  // Views on the same storage. slice_rows() is along the first axis; reshape() keeps the last.
  QuantizedTensor slice_rows(int64_t begin, int64_t end) const;
  QuantizedTensor reshape(Shape shape) const;
  bool same_storage(const QuantizedTensor& other) const { return storage_ == other.storage_; }
  bool borrowed() const { return storage_ != nullptr && storage_->read_only(); }

  // The blocks without checks, for ops and kernels.
  const std::byte* raw() const { return storage_->data() + offset_; }

 private:
  Shape shape_;
  WeightType type_ = WeightType::q8_0;
  int64_t offset_ = 0;  // bytes
  std::shared_ptr<Storage> storage_;
};

}  // namespace qkv

#include "qkv/tensor/quantized.h"

#include <array>
#include <utility>

namespace qkv {
namespace {

void expect_blocks(const Shape& shape, WeightType type) {
  check(is_quantized(type), "quantised tensor: {} has no blocks", name_of(type));
  check(shape.rank() > 0 && shape[-1] % layout_of(type).elements == 0,
        "quantised tensor: rows of {} are no whole blocks of {} {} elements", shape, layout_of(type).elements,
        name_of(type));
}

}  // namespace

QuantizedTensor QuantizedTensor::empty(Shape shape, WeightType type) {
  expect_blocks(shape, type);
  QuantizedTensor t;
  t.shape_ = shape;
  t.type_ = type;
  t.storage_ = Storage::allocate(t.bytes());
  return t;
}

QuantizedTensor QuantizedTensor::borrow(Shape shape, WeightType type, const std::byte* data,
                                        std::shared_ptr<const void> owner) {
  expect_blocks(shape, type);
  QuantizedTensor t;
  t.shape_ = shape;
  t.type_ = type;
  t.storage_ = Storage::borrow(data, t.bytes(), std::move(owner));
  return t;
}

Span<const std::byte> QuantizedTensor::blocks() const {
  check(defined(), "quantised tensor: it is undefined");
  return {storage_->data() + offset_, bytes()};
}

Span<std::byte> QuantizedTensor::mutable_blocks() {
  check(defined() && !storage_->read_only(), "quantised tensor: its memory is read-only");
  return {storage_->data() + offset_, bytes()};
}

QuantizedTensor QuantizedTensor::slice_rows(int64_t begin, int64_t end) const {
  check(shape_.rank() > 1 && 0 <= begin && begin <= end && end <= shape_[0], "slice_rows: [{}, {}) of {}",
        begin, end, shape_);
  std::array<int64_t, Shape::kMaxRank> extents{};
  for (int i = 0; i < shape_.rank(); ++i) extents[i] = shape_[i];
  extents[0] = end - begin;
  QuantizedTensor t = *this;
  t.shape_ = Shape(std::span<const int64_t>(extents.data(), shape_.rank()));
  if (shape_[0] > 0) t.offset_ += begin * (rows() / shape_[0]) * row_bytes();
  return t;
}

QuantizedTensor QuantizedTensor::reshape(Shape shape) const {
  check(shape.count() == shape_.count() && shape.rank() > 0 && shape[-1] == width(),
        "reshape: {} has other rows than {}", shape, shape_);
  QuantizedTensor t = *this;
  t.shape_ = shape;
  return t;
}

}  // namespace qkv

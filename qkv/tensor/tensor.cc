#include "qkv/tensor/tensor.h"

#include <fmt/core.h>

namespace qkv {

Tensor Tensor::empty(Shape shape, DType dtype) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.storage_ = Storage::allocate(static_cast<size_t>(shape.count() * size_of(dtype)));
  return t;
}

Tensor Tensor::zeros(Shape shape, DType dtype) {
  Tensor t = empty(shape, dtype);
  std::memset(t.raw(), 0, t.bytes());
  return t;
}

Tensor Tensor::borrow(Shape shape, DType dtype, const std::byte* data, std::shared_ptr<const void> owner) {
  Tensor t;
  t.shape_ = shape;
  t.dtype_ = dtype;
  t.storage_ = Storage::borrow(data, static_cast<size_t>(shape.count() * size_of(dtype)), std::move(owner));
  return t;
}

float Tensor::item() const {
  check(count() == 1 && dtype_ == DType::f32, "item: expected one f32 element, got {} {}", name_of(dtype_),
        shape_);
  return data<float>()[0];
}

Tensor Tensor::reshape(Shape shape) const {
  check(shape.count() == count(), "reshape: {} does not hold as many elements as {}", shape, shape_);
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::slice_rows(int64_t begin, int64_t end) const {
  check(shape_.rank() > 0 && 0 <= begin && begin <= end && end <= shape_[0], "slice_rows: [{}, {}) of {}",
        begin, end, shape_);
  std::array<int64_t, Shape::kMaxRank> extents{};
  for (int i = 0; i < shape_.rank(); ++i) extents[i] = shape_[i];
  extents[0] = end - begin;
  const Shape shape(std::span<const int64_t>(extents.data(), shape_.rank()));
  return view(shape_[0] == 0 ? 0 : begin * (count() / shape_[0]), shape);
}

Tensor Tensor::view(int64_t first_element, Shape shape) const {
  check(first_element >= 0 && first_element + shape.count() <= count(), "view: {} at {} of {}", shape,
        first_element, shape_);
  Tensor t = *this;
  t.shape_ = shape;
  t.offset_ += first_element * size_of(dtype_);
  return t;
}

void Tensor::fail_access(DType wanted) const {
  check(defined(), "tensor: expected {}, got nothing", name_of(wanted));
  check(dtype_ == wanted, "tensor: expected {}, got {} {}", name_of(wanted), name_of(dtype_), shape_);
  fail("tensor: {} {} lies in memory that can only be read", name_of(dtype_), shape_);
}

std::pair<int64_t, int64_t> Tensor::range_of(std::initializer_list<int64_t> places) const {
  check(std::ssize(places) <= shape_.rank(), "tensor: {} places in {}", places.size(), shape_);
  int64_t begin = 0, size = count();
  int axis = 0;
  for (const int64_t place : places) {
    const int64_t extent = shape_[axis];
    check(place >= 0 && place < extent, "tensor: place {} on axis {} of {}", place, axis, shape_);
    size /= extent;
    begin += place * size;
    ++axis;
  }
  return {begin, size};
}

Span<const std::byte> Tensor::value_bytes() const {
  expect_values(dtype_);
  return {storage_->data() + offset_, bytes()};
}

Span<std::byte> Tensor::mutable_value_bytes() {
  expect_writable(dtype_);
  return {storage_->data() + offset_, bytes()};
}

void Tensor::copy(const Tensor& from) {
  check(defined() && from.defined() && from.dtype_ == dtype_ && from.count() == count(),
        "tensor: {} {} cannot be copied to {} {}", name_of(from.dtype_), from.shape_, name_of(dtype_),
        shape_);
  const Span<std::byte> to = mutable_value_bytes();
  if (!to.empty()) std::memmove(to.data(), from.raw(), to.size());
}

void Tensor::set_zero() {
  const Span<std::byte> to = mutable_value_bytes();
  if (!to.empty()) std::memset(to.data(), 0, to.size());
}

int64_t Tensor::place_in(const Tensor& whole) const {
  const int64_t begin = (offset_ - whole.offset_) / size_of(dtype_);
  check(defined() && same_storage(whole) && dtype_ == whole.dtype_ && offset_ >= whole.offset_ &&
            begin + count() <= whole.count(),
        "tensor: {} is no view of {}", shape_, whole.shape_);
  return begin;
}

void copy_rows(const Tensor& from, int64_t row, int64_t column, int64_t rows, Tensor& to, int64_t to_row) {
  check(from.defined() && to.defined() && from.dtype() == to.dtype(), "copy_rows: {} to {}",
        name_of(from.dtype()), name_of(to.dtype()));
  if (rows == 0 || to.width() == 0) return;
  check(row >= 0 && rows >= 0 && row + rows <= from.rows() && column >= 0 &&
            column + to.width() <= from.width() && to_row >= 0 && to_row + rows <= to.rows(),
        "copy_rows: {} rows from {} on, columns from {} on, of {} to rows from {} on of {}", rows, row,
        column, from.shape(), to_row, to.shape());
  const int64_t size = size_of(from.dtype()), bytes = to.width() * size, stride = from.width() * size;
  const std::byte* source = from.value_bytes().data() + (row * from.width() + column) * size;
  std::byte* target = to.mutable_value_bytes().data() + to_row * bytes;
  if (stride == bytes)
    std::memmove(target, source, static_cast<size_t>(rows * bytes));
  else
    for (int64_t r = 0; r < rows; ++r)
      std::memmove(target + r * bytes, source + r * stride, static_cast<size_t>(bytes));
}

Tensor Tensor::clone() const {
  Tensor t = empty(shape_, dtype_);
  std::memcpy(t.raw(), raw(), bytes());
  return t;
}

}  // namespace qkv

fmt::format_context::iterator fmt::formatter<qkv::Tensor>::format(const qkv::Tensor& tensor,
                                                                  format_context& context) const {
  return fmt::format_to(context.out(), "{}", tensor.defined() ? tensor.shape().text() : "nothing");
}

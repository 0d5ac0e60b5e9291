#include "qkv/tensor/tensor.h"

#include <limits>

namespace qkv {

double decimal(float x) {
  return std::stod(fmt::format("{}", x));
}

float float_from_f16(uint16_t h) {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16, exponent = h >> 10 & 31, fraction = h & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  if (exponent == 0)
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24f));
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

std::optional<uint16_t> f16_from_float(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  constexpr uint32_t kLeastNormal = 113u << 23, kInfinity = 255u << 23, kBeyond = 143u << 23;
  const auto whole = [&](uint32_t f16) { return std::optional(static_cast<uint16_t>(sign | f16)); };
  if (magnitude < kLeastNormal) {
    const float steps = std::bit_cast<float>(magnitude) * 0x1p24f;
    return steps == std::floor(steps) ? whole(static_cast<uint32_t>(steps)) : std::nullopt;
  }
  if ((magnitude & 0x1FFFu) != 0 || (magnitude >= kBeyond && magnitude < kInfinity)) return std::nullopt;
  if (magnitude >= kInfinity) return whole(0x7C00u | (magnitude >> 13 & 0x3FFu));
  return whole((magnitude >> 13) - (112u << 10));
}

void fail_index(int64_t index, size_t size) {
  fail("span: element {} of {}", index, size);
}

void fail_part(int64_t begin, int64_t count, size_t size) {
  fail("span: {} elements from {} on, of {}", count, begin, size);
}

void fail_sizes(size_t from, size_t to) {
  fail("span: {} elements do not fill {}", from, to);
}

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
        shape_.text());
  return data<float>()[0];
}

Tensor Tensor::reshape(Shape shape) const {
  check(shape.count() == count(), "reshape: {} does not hold as many elements as {}", shape.text(),
        shape_.text());
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::slice_rows(int64_t begin, int64_t end) const {
  check(shape_.rank() > 0 && 0 <= begin && begin <= end && end <= shape_[0], "slice_rows: [{}, {}) of {}",
        begin, end, shape_.text());
  std::array<int64_t, Shape::kMaxRank> extents{};
  for (int i = 0; i < shape_.rank(); ++i) extents[i] = shape_[i];
  extents[0] = end - begin;
  const Shape shape(std::span<const int64_t>(extents.data(), shape_.rank()));
  return view(shape_[0] == 0 ? 0 : begin * (count() / shape_[0]), shape);
}

Tensor Tensor::view(int64_t first_element, Shape shape) const {
  check(first_element >= 0 && first_element + shape.count() <= count(), "view: {} at {} of {}", shape.text(),
        first_element, shape_.text());
  Tensor t = *this;
  t.shape_ = shape;
  t.offset_ += first_element * size_of(dtype_);
  return t;
}

void Tensor::fail_access(DType wanted) const {
  check(defined(), "tensor: expected {}, got nothing", name_of(wanted));
  check(dtype_ == wanted, "tensor: expected {}, got {} {}", name_of(wanted), name_of(dtype_), shape_.text());
  fail("tensor: {} {} lies in memory that can only be read", name_of(dtype_), shape_.text());
}

std::pair<int64_t, int64_t> Tensor::range_of(std::initializer_list<int64_t> places) const {
  check(std::ssize(places) <= shape_.rank(), "tensor: {} places in {}", places.size(), shape_.text());
  int64_t begin = 0, size = count();
  int axis = 0;
  for (const int64_t place : places) {
    const int64_t extent = shape_[axis];
    check(place >= 0 && place < extent, "tensor: place {} on axis {} of {}", place, axis, shape_.text());
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
        "tensor: {} {} cannot be copied to {} {}", name_of(from.dtype_), from.shape_.text(), name_of(dtype_),
        shape_.text());
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
        "tensor: {} is no view of {}", shape_.text(), whole.shape_.text());
  return begin;
}

void copy_rows(const Tensor& from, int64_t row, int64_t column, int64_t rows, Tensor& to, int64_t to_row) {
  check(from.defined() && to.defined() && from.dtype() == to.dtype(), "copy_rows: {} to {}",
        name_of(from.dtype()), name_of(to.dtype()));
  if (rows == 0 || to.width() == 0) return;
  check(row >= 0 && rows >= 0 && row + rows <= from.rows() && column >= 0 &&
            column + to.width() <= from.width() && to_row >= 0 && to_row + rows <= to.rows(),
        "copy_rows: {} rows from {} on, columns from {} on, of {} to rows from {} on of {}", rows, row,
        column, from.shape().text(), to_row, to.shape().text());
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

// A dense, row-major, contiguous, typed array: a handle that is cheap to copy and shares its storage.
#pragma once

#include <cassert>
#include <concepts>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/tensor/dtype.h"
#include "qkv/tensor/shape.h"
#include "qkv/tensor/span.h"
#include "qkv/tensor/storage.h"

namespace qkv {

struct GraphEdge;  // autograd's link from a tensor to its graph; opaque here

// Elements in row-major order without gaps, and their place in the graph if they need a gradient.
class Tensor {
 public:
  Tensor() = default;
  static Tensor empty(Shape shape, DType dtype);  // uninitialised
  static Tensor zeros(Shape shape, DType dtype);
  // A read-only tensor in memory that `owner` keeps alive.
  static Tensor borrow(Shape shape, DType dtype, const std::byte* data, std::shared_ptr<const void> owner);
  // A copy of the values, in row-major order. Throws Error if the shape has another count.
  template <typename T>
  static Tensor of(Shape shape, std::span<const T> values) {
    check(shape.count() == static_cast<int64_t>(values.size()), "tensor {}: expected {} values, got {}",
          shape, shape.count(), values.size());
    Tensor t = empty(shape, dtype_of<T>);
    if (!values.empty()) std::memcpy(t.raw(), values.data(), values.size_bytes());
    return t;
  }
  template <typename T>
  static Tensor of(Shape shape, const std::vector<T>& values) {
    return of(shape, std::span<const T>(values));
  }

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t count() const { return shape_.count(); }
  DType dtype() const { return dtype_; }
  size_t bytes() const { return static_cast<size_t>(count() * size_of(dtype_)); }
  // The extent of the last axis, and how many rows of it there are.
  int64_t width() const { return shape_.rank() == 0 ? 1 : shape_[-1]; }
  int64_t rows() const { return width() == 0 ? 0 : count() / width(); }

  // The elements. Throw Error unless T is their type. mutable_values() also throws if the memory is
  // borrowed.
  template <typename T>
  Span<const T> values() const QKV_LIFETIME_BOUND {
    expect_values(dtype_of<T>);
    return {reinterpret_cast<const T*>(storage_->data() + offset_), static_cast<size_t>(count())};
  }
  template <typename T>
  Span<T> mutable_values() QKV_LIFETIME_BOUND {
    expect_writable(dtype_of<T>);
    return {reinterpret_cast<T*>(storage_->data() + offset_), static_cast<size_t>(count())};
  }
  // Row i along the last axis, of rows() rows. Also throw Error if there is no such row.
  template <typename T>
  Span<const T> row(int64_t i) const QKV_LIFETIME_BOUND {
    return values<T>().row(i, width());
  }
  template <typename T>
  Span<T> mutable_row(int64_t i) QKV_LIFETIME_BOUND {
    return mutable_values<T>().row(i, width());
  }
  // The elements with these indices on the first axes: for [S, H, Q, K], part<T>(s, h, q) has K elements.
  // Also throw Error if an index is beyond its axis.
  template <typename T, std::integral... Places>
  Span<const T> part(Places... places) const QKV_LIFETIME_BOUND {
    const auto [begin, count] = range_of({static_cast<int64_t>(places)...});
    return values<T>().subspan(begin, count);
  }
  template <typename T, std::integral... Places>
  Span<T> mutable_part(Places... places) QKV_LIFETIME_BOUND {
    const auto [begin, count] = range_of({static_cast<int64_t>(places)...});
    return mutable_values<T>().subspan(begin, count);
  }
  // The elements' bytes, whatever their type.
  Span<const std::byte> value_bytes() const QKV_LIFETIME_BOUND;
  Span<std::byte> mutable_value_bytes() QKV_LIFETIME_BOUND;
  // Copies the elements of `from`. Throws Error if it has another type or another count.
  void copy(const Tensor& from);
  void set_zero();

  // The elements without checks, for ops and kernels. Other folders must not use these
  // (tools/data_lint.py). REQUIRES: T is their type, and for writing that the memory is not borrowed.
  template <typename T>
  const T* data() const {
    assert(dtype_ == dtype_of<T>);
    return reinterpret_cast<const T*>(storage_->data() + offset_);
  }
  template <typename T>
  T* mutable_data() {
    assert(dtype_ == dtype_of<T> && !storage_->read_only());
    return reinterpret_cast<T*>(storage_->data() + offset_);
  }
  const void* raw() const { return storage_->data() + offset_; }
  void* raw() { return storage_->data() + offset_; }
  float item() const;  // the one element of an f32 tensor

  // Views on the same storage.
  Tensor reshape(Shape shape) const;
  Tensor slice_rows(int64_t begin, int64_t end) const;  // along the first axis
  Tensor view(int64_t first_element, Shape shape) const;

  Tensor clone() const;  // a copy of the values, outside any graph
  Tensor detach() const {
    Tensor t = *this;
    t.edge_ = nullptr;
    return t;
  }
  // True if no other tensor uses this storage.
  bool unique() const { return storage_.use_count() == 1 && !storage_->read_only(); }
  bool same_storage(const Tensor& other) const { return storage_ == other.storage_; }
  // True if someone else owns the memory, e.g. a mapped file.
  bool borrowed() const { return storage_ != nullptr && storage_->read_only(); }
  // Number of elements of `whole` before the first of this view. Throws Error if this is not a view of it.
  int64_t place_in(const Tensor& whole) const;

  const std::shared_ptr<GraphEdge>& edge() const { return edge_; }
  void set_edge(std::shared_ptr<GraphEdge> edge) { edge_ = std::move(edge); }

 private:
  void expect_values(DType wanted) const {
    if (storage_ == nullptr || dtype_ != wanted) [[unlikely]]
      fail_access(wanted);
  }
  void expect_writable(DType wanted) const {
    if (storage_ == nullptr || dtype_ != wanted || storage_->read_only()) [[unlikely]]
      fail_access(wanted);
  }
  [[noreturn]] void fail_access(DType wanted) const;
  // The first element with these indices on the first axes, and the number of such elements.
  std::pair<int64_t, int64_t> range_of(std::initializer_list<int64_t> places) const;

  Shape shape_;
  DType dtype_ = DType::f32;
  int64_t offset_ = 0;  // bytes
  std::shared_ptr<Storage> storage_;
  std::shared_ptr<GraphEdge> edge_;
};

// Copies rows [row, row + rows) of `from` to the rows of `to` from `to_row` on. Takes as many columns from
// `column` on as `to` has. Throws Error if types differ or either has no such rows or columns.
void copy_rows(const Tensor& from, int64_t row, int64_t column, int64_t rows, Tensor& to, int64_t to_row);

}  // namespace qkv

// Messages show a tensor as its shape, or as "nothing" if it is undefined.
template <>
struct fmt::formatter<qkv::Tensor> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  format_context::iterator format(const qkv::Tensor& tensor, format_context& context) const;
};

// A view of elements that checks its bounds in every build.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

// Clang warns of a view that outlives the temporary which it views.
#ifdef __clang__
#define QKV_VIEW_OF(T) [[gsl::Pointer(T)]]
#define QKV_LIFETIME_BOUND [[clang::lifetimebound]]
#else
#define QKV_VIEW_OF(T)
#define QKV_LIFETIME_BOUND
#endif

namespace qkv {

// Throw Error.
[[noreturn]] void fail_index(int64_t index, size_t size);
[[noreturn]] void fail_part(int64_t begin, int64_t count, size_t size);
[[noreturn]] void fail_sizes(size_t from, size_t to);

// Consecutive elements that someone else keeps alive, like std::span; but an index or a part that is out of
// range throws Error. In a loop that ends at the span's own size, or at n of first(n), the compiler sees that
// the check holds and leaves it out. A kernel is given data() of a part that was checked and the part's size.
template <typename T>
class QKV_VIEW_OF(T) Span {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  Span() = default;
  Span(T* data, size_t size) : data_(data), size_(size) {}
  operator Span<const T>() const  // NOLINT: as std::span converts
      requires(!std::is_const_v<T>) {
    return {data_, size_};
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() const { return data_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }

  T& operator[](int64_t i) const {
    if (static_cast<uint64_t>(i) >= size_) [[unlikely]]
      fail_index(i, size_);
    return data_[i];
  }
  T& front() const { return (*this)[0]; }
  T& back() const { return (*this)[static_cast<int64_t>(size_) - 1]; }

  // Elements [begin, begin + count), or from `begin` to the end.
  Span subspan(int64_t begin, int64_t count) const {
    if (begin < 0 || count < 0 || static_cast<uint64_t>(begin) > size_ ||
        static_cast<uint64_t>(count) > size_ - static_cast<uint64_t>(begin)) [[unlikely]]
      fail_part(begin, count, size_);
    return {data_ + begin, static_cast<size_t>(count)};
  }
  Span subspan(int64_t begin) const { return subspan(begin, static_cast<int64_t>(size_) - begin); }
  Span first(int64_t count) const { return subspan(0, count); }
  Span last(int64_t count) const { return subspan(static_cast<int64_t>(size_) - count, count); }

  // Row i of rows of `width` elements.
  Span row(int64_t i, int64_t width) const {
    if (static_cast<uint64_t>(i) > size_) [[unlikely]]  // before the product could overflow
      fail_index(i, size_);
    return subspan(static_cast<int64_t>(static_cast<uint64_t>(i) * static_cast<uint64_t>(width)), width);
  }

  // Copies the elements of `from`. Throws Error where it has another size.
  void copy(Span<const value_type> from) const requires(!std::is_const_v<T>) {
    if (from.size() != size_) [[unlikely]]
      fail_sizes(from.size(), size_);
    std::copy_n(from.data(), size_, data_);
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace qkv

template <typename T>
inline constexpr bool std::ranges::enable_borrowed_range<qkv::Span<T>> = true;
template <typename T>
inline constexpr bool std::ranges::enable_view<qkv::Span<T>> = true;

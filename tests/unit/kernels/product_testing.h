// Shared by the tests of matrix products: a product with its error bound.
#pragma once

#include <functional>
#include <vector>

#include "qkv/kernels/gemm.h"
#include "tests/unit/kernels/kernel_testing.h"

namespace qkv {

struct Extents {
  int64_t m, n, k;
};

inline float element(const Buffer<float>& x, int64_t i) {
  return x[i];
}
inline float element(const Buffer<BFloat16>& x, int64_t i) {
  return static_cast<float>(x[i]);
}

// One product of random matrices, with `gap` elements between rows and before the first.
template <typename In, typename Out>
class ProductCase {
 public:
  ProductCase(Extents e, bool at, bool bt, bool with_bias, bool accumulate, int64_t gap) : e_(e) {
    p_ = {.m = e.m, .n = e.n, .k = e.k, .out = dtype_of<Out>};
    p_.a = dense(nullptr, dtype_of<In>, (at ? e.m : e.k) + gap, at);
    p_.b = dense(nullptr, dtype_of<In>, (bt ? e.k : e.n) + 2 * gap, bt);
    p_.c_stride = e.n + gap, p_.accumulate = accumulate;
    a_ = Buffer<In>::normal((at ? e.k : e.m) * p_.a.stride, 1, 1, gap);
    b_ = Buffer<In>::normal((bt ? e.n : e.k) * p_.b.stride, 2, 1, gap);
    bias_ = Buffer<float>::normal(e.n, 3, 1, gap);
    start_ = Buffer<Out>::normal(e.m * p_.c_stride, 4, 1, gap);
    p_.a.data = a_.data(), p_.b.data = b_.data(), p_.bias = with_bias ? bias_.data() : nullptr;
  }

  Buffer<Out> run(const std::function<void(const Product&)>& product) const {
    Buffer<Out> c = start_;
    Product p = p_;
    p.c = c.data();
    product(p);
    return c;
  }

  // A sum of k products, the bias and the start, in any order: (k + 3) eps of their magnitudes, and a store.
  // Elements between the rows of C must not change.
  void check(const Buffer<Out>& got, const char* what) const {
    const Buffer<Out>& start = start_;
    std::vector<double> want(got.size()), bound(got.size(), 0);
    for (int64_t i = 0; i < got.size(); ++i) want[i] = start.at(i);
    for (int64_t i = 0; i < e_.m; ++i)
      for (int64_t j = 0; j < e_.n; ++j) {
        double sum = p_.bias ? bias_.at(j) : 0, size = std::abs(sum);
        for (int64_t l = 0; l < e_.k; ++l) {
          const double term =
              double{element(a_, p_.a.transposed ? l * p_.a.stride + i : i * p_.a.stride + l)} *
              element(b_, p_.b.transposed ? j * p_.b.stride + l : l * p_.b.stride + j);
          sum += term, size += std::abs(term);
        }
        const int64_t at = i * p_.c_stride + j;
        if (p_.accumulate) sum += start.at(at), size += std::abs(start.at(at));
        want[at] = sum;
        bound[at] = (static_cast<double>(e_.k) + 3) * kEps * size + kStoreEps<Out> / 2 * std::abs(sum);
      }
    EXPECT_TRUE(got.guards_intact()) << what;
    for (int64_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::abs(got.at(i) - want[i]), bound[i])
          << what << "[" << i / p_.c_stride << ", " << i % p_.c_stride << "]: got " << got.at(i) << ", want "
          << want[i];
  }

 private:
  Extents e_;
  Product p_;
  Buffer<In> a_{0}, b_{0};
  Buffer<float> bias_{0};
  Buffer<Out> start_{0};
};

}  // namespace qkv

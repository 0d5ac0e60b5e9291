// Matrix products against the plain triple loop, and the plain loop against f64.
#include "qkv/kernels/gemm.h"

#include "tests/unit/kernel_testing.h"

namespace qkv {
namespace {

struct Extents {
  int64_t m, n, k;
};
// 1030 columns: more than a panel of the detour that bf16 takes where there are no bf16 instructions.
const std::vector<Extents> kExtents = {{1, 1, 1},    {1, 7, 16},   {1, 768, 33}, {2, 3, 5},    {7, 1, 9},
                                       {5, 33, 1},   {33, 17, 65}, {16, 16, 16}, {64, 65, 31}, {3, 1030, 40},
                                       {65, 3, 129}, {1, 64, 2},   {31, 96, 100}};

float element(const Buffer<float>& x, int64_t i) {
  return x[i];
}
float element(const Buffer<BFloat16>& x, int64_t i) {
  return static_cast<float>(x[i]);
}

template <typename In, typename Out>
class Case {
 public:
  Case(Extents e, bool at, bool bt, bool with_bias, bool accumulate, int64_t gap) : e_(e) {
    p_ = {.m = e.m, .n = e.n, .k = e.k, .in = dtype_of<In>, .out = dtype_of<Out>};
    p_.a_transposed = at, p_.b_transposed = bt, p_.accumulate = accumulate;
    p_.a_stride = (at ? e.m : e.k) + gap, p_.b_stride = (bt ? e.k : e.n) + 2 * gap, p_.c_stride = e.n + gap;
    a_ = Buffer<In>::normal((at ? e.k : e.m) * p_.a_stride, 1, 1, gap);
    b_ = Buffer<In>::normal((bt ? e.n : e.k) * p_.b_stride, 2, 1, gap);
    bias_ = Buffer<float>::normal(e.n, 3, 1, gap);
    start_ = Buffer<Out>::normal(e.m * p_.c_stride, 4, 1, gap);
    p_.a = a_.data(), p_.b = b_.data(), p_.bias = with_bias ? bias_.data() : nullptr;
  }

  Buffer<Out> run(void (*product)(const Product&)) const {
    Buffer<Out> c = start_;
    Product p = p_;
    p.c = c.data();
    product(p);
    return c;
  }

  // A sum of k products, the bias and the start, in any order: (k + 3) eps of their magnitudes, and a store.
  // What lies between the rows of C is left alone.
  void check(const Buffer<Out>& got, const char* what) const {
    const Buffer<Out>& start = start_;
    std::vector<double> want(got.size()), bound(got.size(), 0);
    for (int64_t i = 0; i < got.size(); ++i) want[i] = start.at(i);
    for (int64_t i = 0; i < e_.m; ++i)
      for (int64_t j = 0; j < e_.n; ++j) {
        double sum = p_.bias ? bias_.at(j) : 0, size = std::abs(sum);
        for (int64_t l = 0; l < e_.k; ++l) {
          const double term =
              double{element(a_, p_.a_transposed ? l * p_.a_stride + i : i * p_.a_stride + l)} *
              element(b_, p_.b_transposed ? j * p_.b_stride + l : l * p_.b_stride + j);
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

template <typename In, typename Out>
void test_products() {
  for (const Extents e : kExtents)
    for (int flags = 0; flags < 16; ++flags) {
      const bool at = flags & 1, bt = flags & 2, bias = flags & 4, accumulate = flags & 8;
      if ((bias == accumulate) == ((e.m + e.n) % 2 == 0))
        continue;  // generating a product's code takes 10 ms
      const int64_t gap = (flags + e.k) % 2 ? 3 : 0;
      SCOPED_TRACE(testing::Message() << "m " << e.m << ", n " << e.n << ", k " << e.k << (at ? ", A^T" : "")
                                      << (bt ? ", B^T" : "") << (bias ? ", bias" : "")
                                      << (accumulate ? ", accumulate" : "") << ", gap " << gap);
      const Case<In, Out> c(e, at, bt, bias, accumulate, gap);
      c.check(c.run(generic_matrix_product), "plain");
      c.check(c.run(matrix_product), "fast");
      c.check(c.run(matrix_product), "again, from the cache of primitives");
      if (testing::Test::HasFailure()) return;
    }
}

TEST(MatrixProduct, F32) {
  test_products<float, float>();
}
TEST(MatrixProduct, Bf16ToF32) {
  test_products<BFloat16, float>();
}
TEST(MatrixProduct, Bf16) {
  test_products<BFloat16, BFloat16>();
}

TEST(MatrixProduct, EmptyExtents) {
  for (const Extents e : {Extents{0, 5, 3}, {5, 0, 3}, {0, 0, 0}, {5, 7, 0}, {1, 1, 0}})
    for (const bool bias : {false, true})
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message() << "m " << e.m << ", n " << e.n << ", k " << e.k);
        const Case<float, float> f32(e, false, true, bias, accumulate, 2);
        f32.check(f32.run(matrix_product), "f32");
        const Case<BFloat16, BFloat16> bf16(e, true, false, bias, accumulate, 2);
        bf16.check(bf16.run(matrix_product), "bf16");
      }
}

// Uninitialised C must not shine through when it is not asked for: NaN times zero.
TEST(MatrixProduct, IgnoresOldContentsUnlessAccumulating) {
  Buffer<float> a = Buffer<float>::normal(9 * 17, 1), b = Buffer<float>::normal(17 * 5, 2);
  Buffer<float> c = Buffer<float>::constant(9 * 5, std::nanf("")), want(9 * 5);
  Product p{.m = 9, .n = 5, .k = 17, .a = a.data(), .a_stride = 17, .b = b.data(), .b_stride = 5};
  p.c = c.data(), p.c_stride = 5;
  matrix_product(p);
  for (int64_t i = 0; i < c.size(); ++i) ASSERT_TRUE(std::isfinite(c[i]));
}

}  // namespace
}  // namespace qkv

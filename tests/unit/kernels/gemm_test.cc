// Matrix products against the plain triple loop, and the plain loop against f64.
#include "qkv/kernels/gemm.h"

#include "tests/unit/kernels/product_testing.h"

namespace qkv::gemm_test {
namespace {

// 1030 columns exceed a panel of the bf16 path for processors without bf16 instructions.
const std::vector<Extents> kExtents = {{1, 1, 1},    {1, 7, 16},   {1, 768, 33}, {2, 3, 5},    {7, 1, 9},
                                       {5, 33, 1},   {33, 17, 65}, {16, 16, 16}, {64, 65, 31}, {3, 1030, 40},
                                       {65, 3, 129}, {1, 64, 2},   {31, 96, 100}};

template <typename In, typename Out>
void test_products() {
  for (const Extents e : kExtents)
    for (int flags = 0; flags < 16; ++flags) {
      const bool at = flags & 1, bt = flags & 2, bias = flags & 4, accumulate = flags & 8;
      if ((bias == accumulate) == ((e.m + e.n) % 2 == 0))
        continue;  // generating a product's code takes 10 ms
      const int64_t gap = (flags + e.k) % 2 ? 3 : 0;
      SCOPED_TRACE(::testing::Message()
                   << "m " << e.m << ", n " << e.n << ", k " << e.k << (at ? ", A^T" : "")
                   << (bt ? ", B^T" : "") << (bias ? ", bias" : "") << (accumulate ? ", accumulate" : "")
                   << ", gap " << gap);
      const ProductCase<In, Out> c(e, at, bt, bias, accumulate, gap);
      c.check(c.run(generic_matrix_product), "plain");
      c.check(c.run(matrix_product), "fast");
      c.check(c.run(matrix_product), "again, from the cache of primitives");
      if (::testing::Test::HasFailure()) return;
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

// The packed products themselves, on every table that has them: edges of tiles, and past the blocks of rows
// (480 and 160), of columns (2,048, or 512 where C is bf16) and of depth (256).
template <typename In, typename Out>
void test_packed_products() {
  const std::vector<Extents> extents = {{1, 1, 1},      {3, 5, 2},     {12, 32, 16},  {13, 33, 17},
                                        {4, 24, 255},   {47, 49, 256}, {60, 70, 257}, {482, 40, 260},
                                        {165, 530, 20}, {5, 2050, 9}};
  for_simd_tables([&](const KernelTable& table) {
    if (table.product == nullptr) return;
    for (const Extents e : extents)
      for (int flags = 0; flags < 16; ++flags) {
        const bool at = flags & 1, bt = flags & 2, bias = flags & 4, accumulate = flags & 8;
        SCOPED_TRACE(::testing::Message()
                     << "m " << e.m << ", n " << e.n << ", k " << e.k << ", layouts and terms " << flags);
        const ProductCase<In, Out> c(e, at, bt, bias, accumulate, flags % 3);
        Buffer<float> scratch(0);
        c.check(c.run([&](const Product& p) {
          scratch = Buffer<float>(table.product_scratch(p));
          table.product(p, scratch.data());
        }),
                "packed");
        ASSERT_TRUE(scratch.guards_intact());
        if (::testing::Test::HasFailure()) return;
      }
  });
}

TEST(PackedProduct, F32) {
  test_packed_products<float, float>();
}
TEST(PackedProduct, Bf16ToF32) {
  test_packed_products<BFloat16, float>();
}
TEST(PackedProduct, Bf16) {
  test_packed_products<BFloat16, BFloat16>();
}

// Numbers in 16 bits are widened: the sums are those of f32.
TEST(RowProduct, OfNarrowNumbersIsThatOfTheirValues) {
  for_simd_tables([&](const KernelTable& table) {
    for (const int64_t rows : {1, 2, 3, 5, 8, 9, 13})
      for (const int64_t k : {1, 7, 16, 33, 100, 515, 2049}) {
        const int64_t n = 11;
        const auto a = Buffer<float>::normal(rows * k, 1, 1, 1);
        std::vector<Float16> halves(n * k);
        std::vector<BFloat16> brains(n * k);
        std::vector<float> of_halves(n * k), of_brains(n * k), want(rows * n), got(rows * n);
        for (int64_t i = 0; i < n * k; ++i) {
          const auto bits = static_cast<uint16_t>(i * 7919 % 0x7C00 | (i % 3 == 0 ? 0x8000 : 0));  // finite
          halves[i].bits = bits;
          of_halves[i] = float_from_f16(bits);
          brains[i] = BFloat16(of_halves[i]);
          of_brains[i] = static_cast<float>(brains[i]);
        }
        SCOPED_TRACE(::testing::Message() << table.name << ", " << rows << " rows, k " << k);
        table.f32.row_product({rows, k, a.data(), k, of_halves.data(), k, want.data(), n}, 0, n);
        table.row_product_f16({rows, k, a.data(), k, halves.data(), k, got.data(), n}, 0, n);
        ASSERT_EQ(want, got);
        table.f32.row_product({rows, k, a.data(), k, of_brains.data(), k, want.data(), n}, 0, n);
        table.bf16.row_product({rows, k, a.data(), k, brains.data(), k, got.data(), n}, 0, n);
        ASSERT_EQ(want, got);
      }
  });
}

// Rows of activations times a weight: any number of rows, any part of the columns, on every table. Each row
// alone gives the same bits.
template <typename T>
void test_row_products() {
  for_simd_tables([&](const KernelTable& table) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 96, 101, 200})
      for (const int64_t k : {1, 7, 16, 31, 64, 100, 511, 513, 2049})
        for (const int64_t n : {1, 2, 5, 16, 37, 80}) {
          if (rows * k * n > 1 << 22) continue;
          SCOPED_TRACE(::testing::Message() << rows << " rows, k " << k << ", n " << n);
          const int64_t a_stride = k + rows % 2, b_stride = k + n % 3, begin = n / 5, end = n - n / 7;
          const auto a = Buffer<float>::normal(rows * a_stride - rows % 2, 1, 1, 1);
          const auto b = Buffer<T>::normal(n * b_stride - n % 3, 2, 1, 3);
          const auto run = [&](const KernelTable& t) {
            auto c = Buffer<float>::constant(rows * (n + 2), 9, 1);
            t.typed<T>().row_product({rows, k, a.data(), a_stride, b.data(), b_stride, c.data(), n + 2},
                                     begin, end);
            return c;
          };
          std::vector<double> bound(rows * (n + 2), 0);
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = begin; j < end; ++j)
              for (int64_t l = 0; l < k; ++l)
                bound[r * (n + 2) + j] += 2 * static_cast<double>(k) * kEps *
                                          std::abs(a.at(r * a_stride + l) * b.at(j * b_stride + l));
          const auto got = run(table);
          expect_close(
              got, run(generic_kernels()), [&](int64_t i) { return bound[i]; }, "c");
          std::vector<float> alone(n + 2);
          for (int64_t r = 0; r < rows; ++r) {
            table.typed<T>().row_product(
                {1, k, a.data() + r * a_stride, a_stride, b.data(), b_stride, alone.data(), n + 2}, begin,
                end);
            for (int64_t j = begin; j < end; ++j)
              ASSERT_EQ(alone[j], got.at(r * (n + 2) + j)) << "row " << r << ", column " << j;
          }
          if (::testing::Test::HasFailure()) return;
        }
  });
}

TEST(RowProduct, F32) {
  test_row_products<float>();
}
TEST(RowProduct, Bf16) {
  test_row_products<BFloat16>();
}

// On processors with tiles, these use them: forward, input gradient, weight gradient.
TEST(MatrixProduct, LargeBf16) {
  const ProductCase<BFloat16, BFloat16> forward({260, 300, 270}, false, true, true, false, 0);
  forward.check(forward.run(matrix_product), "forward");
  const ProductCase<BFloat16, BFloat16> input_grad({260, 270, 300}, false, false, false, false, 0);
  input_grad.check(input_grad.run(matrix_product), "input gradient");
  const ProductCase<BFloat16, float> weight_grad({300, 270, 260}, true, false, false, true, 0);
  weight_grad.check(weight_grad.run(matrix_product), "weight gradient");
}

TEST(MatrixProduct, EmptyExtents) {
  for (const Extents e : {Extents{0, 5, 3}, {5, 0, 3}, {0, 0, 0}, {5, 7, 0}, {1, 1, 0}})
    for (const bool bias : {false, true})
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(::testing::Message() << "m " << e.m << ", n " << e.n << ", k " << e.k);
        const ProductCase<float, float> f32(e, false, true, bias, accumulate, 2);
        f32.check(f32.run(matrix_product), "f32");
        const ProductCase<BFloat16, BFloat16> bf16(e, true, false, bias, accumulate, 2);
        bf16.check(bf16.run(matrix_product), "bf16");
      }
}

// Uninitialised C must not affect the result if it is not added: NaN times zero.
TEST(MatrixProduct, IgnoresOldContentsUnlessAccumulating) {
  Buffer<float> a = Buffer<float>::normal(9 * 17, 1), b = Buffer<float>::normal(17 * 5, 2);
  Buffer<float> c = Buffer<float>::constant(9 * 5, std::nanf("")), want(9 * 5);
  Product p{
      .m = 9, .n = 5, .k = 17, .a = dense(a.data(), DType::f32, 17), .b = dense(b.data(), DType::f32, 5)};
  p.c = c.data(), p.c_stride = 5;
  matrix_product(p);
  for (int64_t i = 0; i < c.size(); ++i) ASSERT_TRUE(std::isfinite(c[i]));
}

}  // namespace
}  // namespace qkv::gemm_test

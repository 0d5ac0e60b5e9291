// The SIMD kernels without reductions over a row against the plain loops: element by element, most bit by
// bit.
// Covers: qkv/kernels/cpu/simd*.cc
#include <bit>
#include <numeric>

#include "tests/unit/kernels/kernel_testing.h"

namespace qkv::kernels_test {
namespace {

template <typename T>
class Elementwise : public ::testing::Test {};
using Types = ::testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(Elementwise, Types);

// Calls f(n, offset) for awkward sizes, 0 included, at misaligned starts.
template <typename F>
void for_sizes(const F& f) {
  for (const int64_t offset : {0, 1, 3}) {
    f(int64_t{0}, offset);
    for (const int64_t n : kAwkwardSizes) {
      SCOPED_TRACE(::testing::Message() << "n " << n << ", offset " << offset);
      f(n, offset);
    }
  }
}

TEST(KernelTables, StartWithGenericAndHaveNames) {
  ASSERT_GE(kernel_table_count(), 1);
  EXPECT_EQ(kernel_table(0).name, "generic");
  for (int i = 1; i < kernel_table_count(); ++i) {
    const bool tiles = kernel_table(i).name == "amx";
    EXPECT_TRUE(kernel_table(i).name == "avx2" || kernel_table(i).name == "avx512" || tiles);
    EXPECT_NE(kernel_table(i).f32.add, generic_kernels().f32.add);
    if (tiles)
      EXPECT_NE(kernel_table(i).bf16.attention, kernel_table(i - 1).bf16.attention);
    else
      EXPECT_NE(kernel_table(i).f32.add, kernel_table(i - 1).f32.add);
  }
}

// Every bf16 value, NaNs with their payloads included, is an f32 with the same upper half.
TEST(Conversion, EveryBf16ToF32) {
  Buffer<BFloat16> x(65536, 1);
  for (int i = 0; i < 65536; ++i) x[i].bits = static_cast<uint16_t>(i);
  for_simd_tables([&](const KernelTable& table) {
    Buffer<float> y(x.size(), 3);
    table.bf16.to_f32(x.size(), x.data(), y.data());
    EXPECT_TRUE(y.guards_intact());
    for (int i = 0; i < 65536; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), static_cast<uint32_t>(i) << 16);
  });
}

// For every upper half: exact, just above, just below the tie, the tie, just above it, the largest lower
// half. That covers both signs of zero, denormals, overflow to infinity, infinities and NaNs.
TEST(Conversion, F32ToBf16IsBitExact) {
  const uint32_t lower[] = {0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
  Buffer<float> x(65536 * 6 + 5, 1);
  for (int64_t i = 0; i < x.size(); ++i) {
    const uint32_t bits = static_cast<uint32_t>(i / 6 % 65536) << 16 | lower[i % 6];
    std::memcpy(&x[i], &bits, 4);
  }
  Buffer<BFloat16> want(x.size());
  generic_kernels().bf16.from_f32(x.size(), x.data(), want.data());
  for_simd_tables([&](const KernelTable& table) {
    Buffer<BFloat16> y(x.size(), 3);
    table.bf16.from_f32(x.size(), x.data(), y.data());
    expect_same_bits(y, want, "from_f32");
  });
}

TYPED_TEST(Elementwise, ConversionOfAwkwardSizes) {
  using T = TypeParam;
  for_simd_tables([&](const KernelTable& table) {
    for_sizes([&](int64_t n, int64_t offset) {
      const auto x = Buffer<T>::normal(n, 1, 1, offset);
      Buffer<float> wide(n, offset), want(n);
      table.template typed<T>().to_f32(n, x.data(), wide.data());
      generic_kernels().typed<T>().to_f32(n, x.data(), want.data());
      expect_same_bits(wide, want, "to_f32");
      Buffer<T> back(n, offset);
      table.template typed<T>().from_f32(n, wide.data(), back.data());
      expect_same_bits(back, x, "from_f32");
    });
  });
}

// One rounded addition: nothing for implementations to differ in.
TYPED_TEST(Elementwise, AddIsBitExact) {
  using T = TypeParam;
  for_simd_tables([&](const KernelTable& table) {
    for_sizes([&](int64_t n, int64_t offset) {
      const auto x = Buffer<T>::normal(n, 1, 1, offset), y = Buffer<T>::normal(n, 2, 3, offset + 1);
      Buffer<T> out(n, offset), want(n);
      table.template typed<T>().add(n, x.data(), y.data(), out.data());
      generic_kernels().typed<T>().add(n, x.data(), y.data(), want.data());
      expect_same_bits(out, want, "add");
    });
  });
}

// Also what lets a backward pass recompute the forward pass's choice under another instruction set.
TYPED_TEST(Elementwise, DropoutIsBitExact) {
  using T = TypeParam;
  for_simd_tables([&](const KernelTable& table) {
    for_sizes([&](int64_t width, int64_t offset) {
      for (const float p : {0.0f, 0.1f, 0.5f, 0.999f}) {
        const int64_t rows = 3;
        const Dropout dropout{.p = p, .key = kTestKey, .first_row = (int64_t{1} << 33) + 5};
        const auto x = Buffer<T>::normal(rows * width, 1, 1, offset);
        Buffer<T> out(rows * width, offset), want(rows * width);
        table.template typed<T>().dropout(rows, width, x.data(), dropout, out.data());
        generic_kernels().typed<T>().dropout(rows, width, x.data(), dropout, want.data());
        expect_same_bits(out, want, "dropout");
      }
    });
  });
}

// gelu: Abramowitz & Stegun 7.1.26 errs by 1.5e-7 in erf, so by 7.5e-8 in Phi; the rest are a handful of
// roundings of terms no larger than x. Near -x, 1 + erf and 1 + tanh cancel: the bound is on x, not gelu(x).
// tanh: 2 s - 1 with s in [0, 1] a few roundings off.
double activation_bound(Activation kind, double x) {
  if (kind == Activation::relu || kind == Activation::identity) return 0;
  if (kind == Activation::tanh || kind == Activation::sigmoid) return 6 * kEps;
  if (kind == Activation::relu_squared) return 2 * kEps * x * x;
  return std::abs(x) * ((kind == Activation::gelu ? 7.5e-8 : 0) + 4 * kEps);
}

// The derivatives, divided by dy. gelu: Phi(x) <= 1 and x phi(x), whose exp errs by eps x^2/2 relatively;
// together below 2. gelu_tanh: 1 - tanh^2 errs by eps where it vanishes, and is multiplied by x u'(x). tanh:
// 1 - t^2 errs by twice what t does.
double activation_grad_bound(Activation kind, double x) {
  if (kind == Activation::relu || kind == Activation::identity) return 0;
  if (kind == Activation::tanh) return 16 * kEps;
  if (kind == Activation::relu_squared) return 4 * kEps * std::abs(x);
  if (kind == Activation::gelu) return 7.5e-8 + 8 * kEps;
  return 4 * kEps * (1 + std::abs(x) * 0.8 * (1 + 0.134145 * x * x));
}

TYPED_TEST(Elementwise, Activations) {
  using T = TypeParam;
  for_simd_tables([&](const KernelTable& table) {
    for (const Activation kind :
         {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::gelu_quick, Activation::silu,
          Activation::relu_squared, Activation::tanh, Activation::sigmoid, Activation::identity})
      for_sizes([&](int64_t n, int64_t offset) {
        auto x = Buffer<T>::normal(n, 1, 3, offset);
        const float extremes[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 30, -30, 1e4f, -1e4f};
        for (int i = 0; i < 8 && n >= 32; ++i) x[i * 3] = T(extremes[i]);
        const auto dy = Buffer<T>::normal(n, 2, 2, offset + 1);
        Buffer<T> y(n, offset), want(n), dx(n, offset), want_dx(n);
        table.template typed<T>().activation(kind, n, x.data(), y.data());
        generic_kernels().typed<T>().activation(kind, n, x.data(), want.data());
        expect_close(
            y, want,
            [&](int64_t i) { return activation_bound(kind, x.at(i)) + kStoreEps<T> * std::abs(want.at(i)); },
            "activation");
        table.template typed<T>().activation_grad(kind, n, x.data(), dy.data(), dx.data());
        generic_kernels().typed<T>().activation_grad(kind, n, x.data(), dy.data(), want_dx.data());
        expect_close(
            dx, want_dx,
            [&](int64_t i) {
              return std::abs(dy.at(i)) * activation_grad_bound(kind, x.at(i)) +
                     kStoreEps<T> * std::abs(want_dx.at(i));
            },
            "activation_grad");
      });
  });
}

// Rows are added in order by every implementation.
TYPED_TEST(Elementwise, ColumnSumsAreBitExact) {
  using T = TypeParam;
  for_simd_tables([&](const KernelTable& table) {
    for (const int64_t width : kAwkwardSizes)
      for (const int64_t begin : {int64_t{0}, std::min<int64_t>(3, width)})
        for (const int64_t rows : {0, 1, 5}) {
          const auto x = Buffer<T>::normal(rows * width, 1);
          auto sums = Buffer<float>::normal(width, 2, 1, 1), want = sums;
          table.template typed<T>().column_sums(rows, width, x.data(), begin, width - begin / 3, sums.data());
          generic_kernels().typed<T>().column_sums(rows, width, x.data(), begin, width - begin / 3,
                                                   want.data());
          expect_same_bits(sums, want, "column_sums");
        }
  });
}

TYPED_TEST(Elementwise, ScatterAddIsBitExact) {
  using T = TypeParam;
  const std::vector<int32_t> ids = {3, 0, 3, 3, 1};  // repeated, and one row left alone
  for_simd_tables([&](const KernelTable& table) {
    for (const int64_t width : kAwkwardSizes)
      for (const int64_t begin : {int64_t{0}, std::min<int64_t>(3, width)}) {
        const auto x = Buffer<T>::normal(5 * width, 1);
        auto sums = Buffer<float>::normal(4 * width, 2, 1, 1), want = sums;
        table.template typed<T>().scatter_add(5, width, x.data(), ids.data(), begin, width, sums.data());
        generic_kernels().typed<T>().scatter_add(5, width, x.data(), ids.data(), begin, width, want.data());
        expect_same_bits(sums, want, "scatter_add");
      }
  });
}

// f32 within runs of 4096 (at least eight lanes: 512 terms a lane, then log2 lanes), f64 across them.
TEST(Optimizers, SumSquares) {
  for_simd_tables([&](const KernelTable& table) {
    for_sizes([&](int64_t n, int64_t offset) {
      const auto x = Buffer<float>::normal(n, 1, 1, offset);
      const double want = generic_kernels().sum_squares(n, x.data());
      EXPECT_NEAR(table.sum_squares(n, x.data()), want, want * kEps * (static_cast<double>(n) / 8 + 5));
    });
    const auto x = Buffer<float>::normal(4096 * 3 + 4095, 1, 1e3, 1);
    const double want = generic_kernels().sum_squares(x.size(), x.data());
    EXPECT_NEAR(table.sum_squares(x.size(), x.data()), want, want * kEps * (512 + 5));
  });
}

TEST(Softmax, LogSumExp) {
  for_simd_tables([&](const KernelTable& table) {
    for_sizes([&](int64_t n, int64_t offset) {
      if (n == 0) return;
      auto x = Buffer<float>::normal(n, 1, 5, offset);
      const double want = generic_kernels().log_sum_exp(n, x.data());
      EXPECT_NEAR(table.log_sum_exp(n, x.data()), want, kEps * (static_cast<double>(n) / 8 + 5)) << n;
      for (int64_t i = 0; i + 1 < n; ++i) x.data()[i] = -std::numeric_limits<float>::infinity();
      EXPECT_EQ(table.log_sum_exp(n, x.data()), x.data()[n - 1]);
    });
  });
}

TEST(Elementwise, Exponentials) {
  for_simd_tables([&](const KernelTable& table) {
    for_sizes([&](int64_t n, int64_t offset) {
      auto x = Buffer<float>::normal(n, 20, 5, offset);
      if (n > 2) x.data()[1] = -std::numeric_limits<float>::infinity(), x.data()[2] = -200;
      std::vector<float> y(static_cast<size_t>(n));
      table.exp(n, x.data(), y.data());
      for (int64_t i = 0; i < n; ++i) {
        const double want = std::exp(std::min<double>(88, x.data()[i]));
        EXPECT_NEAR(y[i], want, 3e-7 * want + 1.2e-38) << x.data()[i];
        float alone = 0;  // an element's bits do not depend on its place
        table.exp(1, x.data() + i, &alone);
        EXPECT_EQ(alone, y[i]);
      }
      table.exp(n, x.data(), x.data());
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(x.data()[i], y[i]);
    });
  });
}

TEST(Optimizers, ScaleAndAxpy) {
  for_simd_tables([&](const KernelTable& table) {
    for_sizes([&](int64_t n, int64_t offset) {
      const auto x = Buffer<float>::normal(n, 1, 1, offset);
      auto y = Buffer<float>::normal(n, 2, 1, offset + 1), want = y;
      const auto start = y;
      table.axpy(n, 0.3f, x.data(), y.data());
      generic_kernels().axpy(n, 0.3f, x.data(), want.data());
      // Fused or not: the product's rounding and the sum's.
      expect_close(
          y, want, [&](int64_t i) { return kEps * (std::abs(0.3 * x.at(i)) + std::abs(want.at(i))); },
          "axpy");
      y = start, want = start;
      table.scale(n, -1.7f, y.data());
      generic_kernels().scale(n, -1.7f, want.data());
      expect_same_bits(y, want, "scale");
    });
  });
}

// A vector's step of every rule against the generic loop: the same sums in another order of roundings.
TEST(Optimizers, EveryRuleEqualsTheGenericLoop) {
  for (const Rule rule :
       {Rule::sgd, Rule::momentum, Rule::nesterov, Rule::adagrad, Rule::rmsprop, Rule::adam, Rule::lion}) {
    const Update u{.rule = rule,
                   .lr = 1e-2f,
                   .grad_scale = 0.7f,
                   .l2 = 0.05f,
                   .decay = 0.1f,
                   .momentum = 0.9f,
                   .beta1 = 0.9f,
                   .beta2 = 0.95f,
                   .epsilon = 1e-3f,
                   .bias1 = 0.271f,
                   .bias2 = 0.142625f};
    for_simd_tables([&](const KernelTable& table) {
      for_sizes([&](int64_t n, int64_t offset) {
        const auto g = Buffer<float>::normal(n, 1, 1, offset + 1);
        auto w = Buffer<float>::normal(n, 2, 1, offset), m = Buffer<float>::normal(n, 3, 0.1, offset);
        auto v = Buffer<float>::normal(n, 4, 0.1, offset);
        for (int64_t i = 0; i < n; ++i) v[i] = v[i] * v[i];
        auto want_w = w, want_m = m, want_v = v;
        const auto w0 = w, m0 = m;
        Buffer<BFloat16> shadow(n, offset);
        float* first = remembers_first(rule) ? m.data() : nullptr;
        float* second = remembers_second(rule) ? v.data() : nullptr;
        generic_kernels().update(u, n, want_w.data(), g.data(), want_m.data(), want_v.data(), nullptr);
        table.update(u, n, w.data(), g.data(), first, second, shadow.data());
        // |m| and |g| bound the terms of a sum that may cancel; nothing here multiplies them by more than 1.
        const auto size = [&](int64_t i) {
          return std::abs(m0.at(i)) + 0.7 * std::abs(g.at(i)) + 0.05 * std::abs(w0.at(i));
        };
        expect_close(
            m, want_m, [&](int64_t i) { return 6 * kEps * size(i); }, "m");
        expect_close(
            v, want_v, [&](int64_t i) { return 12 * kEps * (want_v.at(i) + size(i) * size(i)); }, "v");
        // Lion's step is a sign: where beta1 m + (1 - beta1) g nearly cancels, it may fall to either side.
        expect_close(
            w, want_w,
            [&](int64_t i) {
              const double grad = 0.7 * g.at(i) + 0.05 * w0.at(i), c = 0.9 * m0.at(i) + 0.1 * grad;
              if (rule == Rule::lion && std::abs(c) < 8 * kEps * size(i)) return 2.1 * u.lr;
              const double root = remembers_second(rule) ? std::sqrt(want_v.at(i)) + u.epsilon : 1;
              const double step = 30 * size(i) / root / u.bias1 + 1 + std::abs(w0.at(i));
              return kEps * (std::abs(want_w.at(i)) + u.lr * step);
            },
            "w");
        EXPECT_TRUE(shadow.guards_intact());
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(shadow[i].bits, BFloat16(w[i]).bits);
        table.update(u, n, w.data(), g.data(), first, second, nullptr);  // a shadow is optional
      });
    });
  }
}

}  // namespace
}  // namespace qkv::kernels_test
